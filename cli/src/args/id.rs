//! Ids, which are checked before anything is sent.

/// Reads an id of a task or a bulk job.
pub fn parse(text: &str) -> Result<String, String> {
    if text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("an id has 24 hexadecimal digits, as create-task prints it".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_24_digits() {
        assert_eq!(parse("6B0003bb686c8275d8013333").as_deref(), Ok("6b0003bb686c8275d8013333"));
        for text in [
            "",
            "6b0003bb686c8275d801333",
            "6b0003bb686c8275d80133333",
            "6b0003bb686c8275d801333g",
            "../../x",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
