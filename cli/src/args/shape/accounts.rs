//! What the help of the commands about users and tokens shows.

use super::Shape;

const LIST: &[&str] = &["config", "format", "pretty"];

const fn shape(name: &'static str, options: &'static [&'static str], examples: &'static str) -> Shape {
    Shape { name, options, connects: false, examples }
}

/// One for each of them. Those of a group come with its name.
pub static SHAPES: [Shape; 10] = [
    shape(
        "user",
        &["config"],
        "disbatch user add ashley --admin --config /etc/disbatch/config.json\n  disbatch user list",
    ),
    shape(
        "user add",
        &["config"],
        "disbatch user add ashley --admin\n  \
         disbatch user add robin --role viewer --queue mail=operator --queue post=submitter\n  \
         disbatch user add sam --tenant acme=operator --no-password\n  \
         disbatch user add ci --queue mail=submitter < password.txt\n\n\
         The password is taken from DISBATCH_USER_PASSWORD, else asked for, else a line of standard input.",
    ),
    shape("user list", LIST, "disbatch user list\n  disbatch user list --format json"),
    shape(
        "user passwd",
        &["config"],
        "disbatch user passwd ashley\n\n\
         The password is taken from DISBATCH_USER_PASSWORD, else asked for, else a line of standard input.",
    ),
    shape("user remove", &["config"], "disbatch user remove ashley"),
    shape(
        "user grant",
        &["config"],
        "disbatch user grant robin --role operator\n  \
         disbatch user grant robin --queue mail=viewer --revoke-queue post\n  \
         disbatch user grant robin --no-role --tenant acme=submitter",
    ),
    shape(
        "token",
        &["config"],
        "disbatch token create nightly --user ashley --role submitter\n  disbatch token list",
    ),
    shape(
        "token create",
        &["config"],
        "disbatch token create nightly --user ashley --role submitter --queue mail --days 365\n  \
         DISBATCH_TOKEN=$(disbatch token create once --user ashley --days 1) disbatch queues",
    ),
    shape("token list", LIST, "disbatch token list\n  disbatch token list --user ashley --format json"),
    shape("token revoke", &["config"], "disbatch token revoke 6b0003bb686c8275d8013333"),
];
