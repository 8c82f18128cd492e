mod descriptions;
mod pages;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_thread_that_stands_still_counts_and_one_that_is_gone_does_not() {
    let workers = Workers::default();
    assert!(workers.go_on());
    let (one, other) = (Arc::new(Pulse::new(Instant::now())), Arc::new(Pulse::new(Instant::now())));
    workers.0.lock().unwrap().extend([Arc::downgrade(&one), Arc::downgrade(&other)]);
    tokio::time::advance(STUCK).await;
    *one.lock().unwrap() = Instant::now();
    assert!(!workers.go_on());
    drop(other);
    assert!(workers.go_on());
}
