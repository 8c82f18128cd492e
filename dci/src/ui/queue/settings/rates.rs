//! How many tasks may start in what time.

use bson::{Bson, Document};
use disbatch_core::model::{Policy, Queue};

use super::{Group, Setting};

/// The rate of the queue, and the one of each of its groups where it goes by groups.
pub(super) fn rates(queue: &Queue) -> Group {
    let mut settings = vec![
        count(
            queue,
            ("rate.n", "Starts"),
            "none",
            "So many tasks may start, on all nodes together, in the time below. Not set: as many as its threads allow.",
        ),
        time(queue, ("rate.per", "Time (s)"), "In so many seconds. They are spread evenly over that time."),
        count(
            queue,
            ("rate.burst", "At once"),
            "what comes in 0.1 s, at least 1",
            "So many may start at once when none has started for a while.",
        ),
    ];
    if queue.policy() == Policy::Fair {
        settings.push(count(
            queue,
            ("group_rate.n", "Starts of a group"),
            "none",
            "The same for each of its groups by itself.",
        ));
        settings.push(time(queue, ("group_rate.per", "Time of a group (s)"), "In so many seconds."));
        settings.push(count(
            queue,
            ("group_rate.burst", "At once of a group"),
            "what comes in 0.1 s, at least 1",
            "So many of a group may start at once when none of it has started for a while.",
        ));
    }
    Group::new("rates", "Rates", "How many of its tasks may start in what time.", settings)
}

fn count(
    queue: &Queue,
    names: (&'static str, &'static str),
    unset: &'static str,
    meaning: &'static str,
) -> Setting {
    Setting::number(names, part(queue, names.0), ("1", "1", unset), meaning)
}

fn time(queue: &Queue, names: (&'static str, &'static str), meaning: &'static str) -> Setting {
    Setting::seconds(names, part(queue, names.0), "none", meaning)
}

/// What is stored of `rate.n`, for instance.
fn part<'a>(queue: &'a Queue, name: &str) -> Option<&'a Bson> {
    let (whole, part) = name.split_once('.')?;
    let stored: Option<&Document> = queue.rest.get(whole).and_then(Bson::as_document);
    stored?.get(part)
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;

    use super::*;

    fn values(fields: Document) -> Vec<(&'static str, String)> {
        let mut queue = doc! { "_id": ObjectId::new(), "name": "q" };
        queue.extend(fields);
        let group = rates(&bson::deserialize_from_document(queue).unwrap());
        group.settings.iter().map(|setting| (setting.name, setting.value())).collect()
    }

    #[test]
    fn rates_are_shown_as_they_are_stored() {
        let limited = values(doc! { "rate": { "n": 10, "per": 60 } });
        let expected = [("rate.n", "10"), ("rate.per", "60"), ("rate.burst", "")];
        assert_eq!(limited, expected.map(|(name, value)| (name, value.to_owned())));
        assert!(values(doc! { "rate": 5 }).iter().all(|(_, value)| value.is_empty()));
    }

    #[test]
    fn groups_have_a_rate_where_the_queue_goes_by_them() {
        let fair = values(doc! { "policy": "fair", "group_rate": { "n": 1, "per": 5, "burst": 2 } });
        let of_groups: Vec<&str> = fair[3..].iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(of_groups, ["1", "5", "2"]);
        assert_eq!(values(doc! { "policy": "fifo" }).len(), 3);
    }
}
