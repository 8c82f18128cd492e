//! What one future of the runner puts down for another.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

/// Letters that nobody has taken yet.
///
/// Who puts something down and who waits for it are mostly parts of one task of the runtime, and the latter is polled right after
/// the former. To wake that task up all the same would cost two system calls for each letter, so it is left out.
#[derive(Debug)]
pub struct Post<T> {
    letters: VecDeque<T>,
    reader: Option<Waker>,
    is_over: bool,
}

impl<T> Default for Post<T> {
    fn default() -> Self {
        Self { letters: VecDeque::new(), reader: None, is_over: false }
    }
}

impl<T> Post<T> {
    /// Puts something down. `own`: the waker of who does. Who is woken up by the same one has to be polled after this.
    pub fn put(&mut self, letter: T, own: &Waker) {
        self.letters.push_back(letter);
        if let Some(reader) = self.reader.take_if(|reader| !reader.will_wake(own)) {
            reader.wake();
        }
    }

    /// Nothing more will come. What has come can still be taken.
    pub fn end(&mut self) {
        self.is_over = true;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// A letter that is there.
    pub fn take(&mut self) -> Option<T> {
        self.letters.pop_front()
    }

    /// The next letter; `None`: nothing more will come. Of several who wait only the last one is told.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(letter) = self.letters.pop_front() {
            return Poll::Ready(Some(letter));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        match &mut self.reader {
            Some(reader) => reader.clone_from(cx.waker()),
            None => self.reader = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Bell(AtomicU32);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_is_polled_anyway_is_not_woken_up_and_everybody_else_is() {
        let bell = Arc::new(Bell::default());
        let (own, others) = (Waker::from(Arc::clone(&bell)), Waker::noop());
        let mut cx = Context::from_waker(&own);
        let mut post = Post::default();
        assert!(post.poll(&mut cx).is_pending());
        post.put(1, &own);
        assert_eq!(bell.0.load(Ordering::Relaxed), 0);
        assert_eq!(post.poll(&mut cx), Poll::Ready(Some(1)));
        assert!(post.poll(&mut cx).is_pending());
        post.put(2, others);
        post.put(3, others);
        assert_eq!(bell.0.load(Ordering::Relaxed), 1);
        post.end();
        assert_eq!([post.poll(&mut cx), post.poll(&mut cx)], [Poll::Ready(Some(2)), Poll::Ready(Some(3))]);
        assert_eq!(post.poll(&mut cx), Poll::Ready(None));
        let mut post = Post::<u8>::default();
        assert!(post.poll(&mut cx).is_pending());
        post.end();
        assert_eq!(bell.0.load(Ordering::Relaxed), 2, "also by the end, whoever says it");
    }
}
