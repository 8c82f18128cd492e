//! People and programs that use the web server: who they are, and what they may do.
//!
//! | collection | a document |
//! | --- | --- |
//! | `accounts.users` | somebody, by name, with a role, grants, and an Argon2id hash of the password |
//! | `accounts.sessions` | a browser that somebody has logged in with |
//! | `accounts.tokens` | a program that acts for somebody, with no more rights than it needs |
//!
//! Applications may have collections of their own called `users`; these are not theirs.
//!
//! Of sessions and tokens only a fingerprint is stored: whoever reads the database cannot use them. Their times are
//! compared with the server's clock, so that it does not matter which host is asked.

mod key;
mod password;
mod rights;
mod sessions;
mod tokens;
mod users;

pub use disbatch_values::user_name::{NameError, UserName};
pub use disbatch_wire::roles::Role;
pub use key::Key;
pub use password::{PasswordError, PasswordHash};
pub use rights::{Grant, Reach, Rights, Scope, tasks_within};
pub use sessions::{Session, Visitor};
pub use tokens::{Bearer, NewToken, Token, is_token};
pub use users::{RightsChange, User};
