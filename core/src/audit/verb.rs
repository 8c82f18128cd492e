//! What can be done.

use crate::bulk::Action;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    QueueCreate,
    QueueUpdate,
    QueueDelete,
    NodeUpdate,
    /// A node that is gone was removed.
    NodeDelete,
    BalanceUpdate,
    /// `QueueBalance` was told to do nothing for a while, or to go on.
    BalancePause,
    TasksSubmit,
    TaskCancel,
    /// A task was queued again.
    TaskRetry,
    /// A task that waits got another priority.
    TaskPriority,
    TaskAnswer,
    /// A link by which that can be answered was made.
    TaskAnswerLink,
    /// A task was moved to the archive.
    TaskArchive,
    Bulk(Action),
    BulkCancelled(Action),
    BulkEnded(Action),
    /// A session was begun.
    Login,
    /// Somebody has shown a wrong name or password.
    LoginRefused,
    /// A session was ended by whom it was of.
    Logout,
    /// Somebody has changed their password.
    PasswordChange,
    TokenCreate,
    TokenRevoke,
    /// Another session was ended.
    SessionEnd,
    UserAdd,
    /// What a user may do, or their password, was changed.
    UserChange,
    UserRemove,
    /// An audit of the counters was asked for.
    CountersAudit,
    ScheduleCreate,
    ScheduleUpdate,
    ScheduleDelete,
    /// A schedule was told to make no tasks by itself.
    SchedulePause,
    /// A schedule was told to make tasks by itself again.
    ScheduleResume,
    /// A schedule was told to make a task at once.
    ScheduleRun,
    /// A schedule was told to make the tasks of a stretch of time.
    ScheduleBackfill,
    /// A calendar was made, or its days were changed.
    CalendarSet,
    CalendarDelete,
    /// A subscription was made, or its settings were changed.
    SubscriptionSet,
    SubscriptionDelete,
    /// A rule that says whose tasks are taken was made or changed.
    AdmissionSet,
    /// Such a rule was lifted.
    AdmissionLift,
    TenantSet,
    TenantDelete,
    WorkerCreate,
    WorkerUpdate,
    WorkerDelete,
    FilesCommit,
    /// A version of a file set was removed, or all of them.
    FilesDelete,
}

impl Verb {
    /// All of them, in the order in which people look for them.
    pub fn all() -> Vec<Self> {
        let one_task = [Self::TasksSubmit, Self::TaskCancel, Self::TaskRetry];
        let one_task = one_task.into_iter().chain([Self::TaskPriority, Self::TaskArchive]);
        let one_task = one_task.chain([Self::TaskAnswer, Self::TaskAnswerLink]);
        let many = |action| [Self::Bulk(action), Self::BulkCancelled(action), Self::BulkEnded(action)];
        let mut all = vec![Self::QueueCreate, Self::QueueUpdate, Self::QueueDelete];
        all.extend(one_task);
        all.extend(Action::ALL.into_iter().flat_map(many));
        all.extend([Self::NodeUpdate, Self::NodeDelete, Self::BalanceUpdate, Self::BalancePause]);
        all.extend([Self::ScheduleCreate, Self::ScheduleUpdate, Self::ScheduleDelete]);
        all.extend([Self::SchedulePause, Self::ScheduleResume, Self::ScheduleRun, Self::ScheduleBackfill]);
        all.extend([Self::CalendarSet, Self::CalendarDelete]);
        all.extend([Self::SubscriptionSet, Self::SubscriptionDelete]);
        all.extend([Self::AdmissionSet, Self::AdmissionLift, Self::TenantSet, Self::TenantDelete]);
        all.extend([Self::WorkerCreate, Self::WorkerUpdate, Self::WorkerDelete]);
        all.extend([Self::FilesCommit, Self::FilesDelete]);
        all.extend([Self::Login, Self::LoginRefused, Self::Logout, Self::PasswordChange, Self::SessionEnd]);
        all.extend([Self::TokenCreate, Self::TokenRevoke, Self::UserAdd, Self::UserChange, Self::UserRemove]);
        all.push(Self::CountersAudit);
        all
    }

    /// Those that change nothing: somebody comes or goes, or has something looked at.
    pub const WITHOUT_CHANGE: [Self; 4] =
        [Self::Login, Self::LoginRefused, Self::Logout, Self::CountersAudit];

    /// As entries have it.
    pub fn words(self) -> String {
        let plain = match self {
            Self::Bulk(action) => return format!("bulk {}", action.as_str()),
            Self::BulkCancelled(action) => return format!("bulk {} cancelled", action.as_str()),
            Self::BulkEnded(action) => return format!("bulk {} ended", action.as_str()),
            Self::QueueCreate => "queue create",
            Self::QueueUpdate => "queue update",
            Self::QueueDelete => "queue delete",
            Self::NodeUpdate => "node update",
            Self::NodeDelete => "node delete",
            Self::BalanceUpdate => "balance update",
            Self::BalancePause => "balance pause",
            Self::TasksSubmit => "tasks submit",
            Self::TaskCancel => "task cancel",
            Self::TaskRetry => "task retry",
            Self::TaskPriority => "task priority",
            Self::TaskArchive => "task archive",
            Self::TaskAnswer => "task answer",
            Self::TaskAnswerLink => "task link to answer",
            Self::Login => "login",
            Self::LoginRefused => "login refused",
            Self::Logout => "logout",
            Self::PasswordChange => "password change",
            Self::TokenCreate => "token create",
            Self::TokenRevoke => "token revoke",
            Self::SessionEnd => "session end",
            Self::UserAdd => "user add",
            Self::UserChange => "user change",
            Self::UserRemove => "user remove",
            Self::CountersAudit => "counters audit",
            Self::ScheduleCreate => "schedule create",
            Self::ScheduleUpdate => "schedule update",
            Self::ScheduleDelete => "schedule delete",
            Self::SchedulePause => "schedule pause",
            Self::ScheduleResume => "schedule resume",
            Self::ScheduleRun => "schedule run",
            Self::ScheduleBackfill => "schedule backfill",
            Self::CalendarSet => "calendar set",
            Self::CalendarDelete => "calendar delete",
            Self::SubscriptionSet => "subscription set",
            Self::SubscriptionDelete => "subscription delete",
            Self::AdmissionSet => "admission set",
            Self::AdmissionLift => "admission lift",
            Self::TenantSet => "tenant set",
            Self::TenantDelete => "tenant delete",
            Self::WorkerCreate => "worker create",
            Self::WorkerUpdate => "worker update",
            Self::WorkerDelete => "worker delete",
            Self::FilesCommit => "files commit",
            Self::FilesDelete => "files delete",
        };
        plain.to_owned()
    }

    /// Whether people look for it by other words: those of the bulk job find how it ended, too.
    pub const fn is_found_with_another(self) -> bool {
        matches!(self, Self::BulkCancelled(_) | Self::BulkEnded(_))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn words_tell_them_apart() {
        let words: BTreeSet<String> = Verb::all().into_iter().map(Verb::words).collect();
        assert_eq!((words.len(), Verb::all().len()), (57, 57));
        assert!(words.contains("bulk retry ended") && words.contains("queue update"), "{words:?}");
        for verb in Verb::all().into_iter().filter(|verb| verb.is_found_with_another()) {
            let words = verb.words();
            let others = Verb::all().into_iter().filter(|other| !other.is_found_with_another());
            assert_eq!(others.filter(|other| words.starts_with(&format!("{} ", other.words()))).count(), 1);
        }
    }
}
