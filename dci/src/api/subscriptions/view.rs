//! A subscription as clients see it.

use std::collections::HashMap;

use bson::DateTime;
use bson::oid::ObjectId;
use disbatch_core::notifications::{Kind, Subscription as Stored};
use disbatch_core::schedules::ScheduleQuery;
use disbatch_core::store::{Store, StoreError};
use disbatch_wire::subscriptions::Subscription;

/// What queues and schedules are called.
pub struct Names(HashMap<ObjectId, String>);

impl Names {
    pub async fn of(store: &Store) -> Result<Self, StoreError> {
        let all = ScheduleQuery::default();
        let (queues, schedules) = futures::try_join!(store.list_queues(), store.list_schedules(&all))?;
        let queues = queues.iter().map(|queue| (queue.id.0, queue.display_name()));
        let schedules = schedules.into_iter().map(|schedule| (schedule.id.0, schedule.settings.name));
        Ok(Self(queues.chain(schedules).collect()))
    }

    pub fn view(&self, stored: &Stored) -> Subscription {
        let (settings, state) = (stored.settings.clone(), &stored.state);
        let named = |ids: Vec<ObjectId>| {
            let name = |id: ObjectId| match self.0.get(&id) {
                Some(name) if !name.is_empty() => name.clone(),
                _ => id.to_hex(), // It has no name, or is gone.
            };
            ids.into_iter().map(name).collect()
        };
        let told = state.pending.iter().map(|group| group.count).sum::<i64>() + state.more;
        let task = state.outbox.as_ref().map(|outbox| outbox.task).or(state.last);
        Subscription {
            name: stored.name.clone(),
            events: settings.events.into_iter().map(Kind::as_str).map(str::to_owned).collect(),
            failures_in_row: settings.failures_in_row,
            waits_longer: settings.waits_longer,
            runs_longer: settings.runs_longer,
            queues: named(settings.queues),
            schedules: named(settings.schedules),
            tenants: settings.tenants,
            tags: settings.tags,
            channel: settings.channel.as_str().to_owned(),
            url: settings.url,
            user: settings.user,
            from: settings.from,
            to: settings.to,
            has_secret: stored.secure_params.is_some(),
            every: settings.every,
            delay: settings.delay,
            subject: settings.subject,
            text: settings.text,
            enabled: settings.enabled,
            messages: state.number,
            sent: state.sent.and_then(|sent| DateTime::try_to_rfc3339_string(sent).ok()),
            task: task.map(ObjectId::to_hex),
            pending: told,
            trouble: state.trouble.clone(),
        }
    }
}
