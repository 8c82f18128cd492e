//! What a task asks a person, with the form of its answer; or the answer that it has had.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, Document};
use disbatch_core::task::question::{ANSWER, Awaiting};

use crate::api::answers::form_of;
use crate::ui::parts::When;
use crate::ui::plain;
use crate::ui::schema::Field;

#[derive(Debug, Clone, PartialEq, Template)]
#[template(path = "task/answer.html")]
pub struct AnswerBox {
    id: String,
    stage: Stage,
}

impl HtmlSafe for AnswerBox {}

#[derive(Debug, Clone, PartialEq)]
enum Stage {
    Nothing,
    Asks(Asks),
    Answered {
        /// Nothing: nobody has answered in time.
        by: String,
        at: When,
        value: String,
    },
}

#[derive(Debug, Clone, PartialEq)]
struct Asks {
    title: String,
    fields: Vec<Field>,
    who: String,
    /// Whether nobody is named, so that operators answer.
    of_operators: bool,
    since: When,
    until: When,
    /// What becomes of the task then.
    then: &'static str,
}

impl AnswerBox {
    pub fn of(id: &str, task: &Document) -> Self {
        let stage = match (Awaiting::of_document(task), task.get_document(ANSWER)) {
            (Some(awaiting), _) => Stage::Asks(Asks::of(&awaiting)),
            (None, Ok(answer)) => Stage::Answered {
                by: plain(answer.get("by")),
                at: When::of(answer.get("at")),
                value: plain(answer.get("value")),
            },
            (None, Err(_)) => Stage::Nothing,
        };
        Self { id: id.to_owned(), stage }
    }
}

impl Asks {
    fn of(awaiting: &Awaiting) -> Self {
        use disbatch_core::task::question::OnDeadline::{Cancel, Continue};
        let when = |at: Option<bson::DateTime>| When::of(at.map(Bson::from).as_ref());
        Self {
            title: awaiting.title.clone(),
            fields: form_of(awaiting).fields,
            who: awaiting.who_in_words(),
            of_operators: awaiting.who.is_empty(),
            since: when(awaiting.asked),
            until: when(awaiting.deadline),
            then: match awaiting.on_deadline {
                Cancel => "the task is cancelled",
                Continue => "the task goes on without an answer",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};

    use super::*;

    fn html(task: &Document) -> String {
        AnswerBox::of("6b0003bb686c8275d8013333", task).render().unwrap()
    }

    #[test]
    fn a_question_has_its_form_and_an_answer_who_gave_it() {
        let at = DateTime::from_millis(1_795_163_067_344);
        let awaiting = doc! {
            "title": "<Go on?>", "form": { "properties": { "go": { "type": "boolean" } } }, "who": ["ann"], "asked": at,
            "deadline": at, "on_deadline": "cancel", "attempt": 1,
        };
        let asks = html(&doc! { "status": -7, "awaiting": awaiting });
        for part in
            ["&#60;Go on?&#62;", "name=\"/go\"", "answer of ann", "the task is cancelled", "/answer/link"]
        {
            assert!(asks.contains(part), "{part} is not in {asks}");
        }
        let answer = doc! { "by": "<ann>", "at": at, "value": { "go": true }, "attempt": 1 };
        let answered = html(&doc! { "status": 1, "answer": answer });
        assert!(answered.contains("&#60;ann&#62;") && answered.contains("&#34;go&#34;:true"), "{answered}");
        let nobodys = doc! { "by": Bson::Null, "at": at, "value": Bson::Null, "attempt": 1 };
        assert!(html(&doc! { "status": 1, "answer": nobodys }).contains("Nobody has answered"));
        assert!(!html(&doc! { "status": -7 }).contains("<section"));
    }
}
