//! Gives tasks to small web services as a runner does.

#[cfg(test)]
#[path = "../../sdk/tests/support/runner.rs"]
mod runner;

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::process::Command;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use serde_json::{Value, json};

    use super::runner::{PluginOutput, run};

    /// What a service has heard.
    struct Heard {
        head: String,
        body: Value,
    }

    /// A service that answers one request after the other with these, each on a connection of its own. An empty answer is
    /// none: it hangs up.
    fn service(listener: TcpListener, answers: Vec<String>) -> Receiver<Heard> {
        let (sender, receiver) = channel();
        thread::spawn(move || {
            for answer in answers {
                let (stream, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(stream);
                let mut head = String::new();
                while reader.read_line(&mut head).unwrap() > 2 {}
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(": ")?;
                    name.eq_ignore_ascii_case("content-length").then(|| value.parse().unwrap())
                });
                let mut body = vec![0; length.unwrap_or(0)];
                reader.read_exact(&mut body).unwrap();
                sender.send(Heard { head, body: serde_json::from_slice(&body).unwrap() }).unwrap();
                reader.get_mut().write_all(answer.as_bytes()).unwrap();
            }
        });
        receiver
    }

    fn answer(status: &str, headers: &str, body: &str) -> String {
        format!(
            "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
    }

    fn listen() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    fn give(address: SocketAddr, worker: &Value) -> PluginOutput {
        let mut task = json!({
            "_id": { "$oid": "6b0004f4686c827f5a609575" }, "params": { "rows": 3 },
            "secure_params": { "password": "horse" },
            "worker": {
                "settings": { "url": format!("http://{address}/start"), "connect_retries": 2 },
                "secrets": { "KEY": "k1" }, "variables": {},
            },
            "callback": { "token": "t0", "url": "http://dci.example/callbacks/6b0004f4686c827f5a609575" },
        });
        for (key, value) in worker.as_object().unwrap() {
            task["worker"][key] = value.clone();
        }
        run(Command::new(env!("CARGO_BIN_EXE_disbatch-http")), &task)
    }

    #[test]
    fn a_service_that_takes_the_task_is_left_with_it() {
        let (listener, address) = listen();
        let heard = service(listener, vec![answer("201 Created", "", "{}")]);
        let settings = json!({
            "url": format!("http://{address}/start"), "headers": { "Authorization": "Bearer {{secret:KEY}}" },
        });
        let outcome = give(address, &json!({ "settings": settings }));
        assert_eq!((outcome.exit.code(), outcome.control), (Some(0), vec![json!({ "detach": true })]));
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", ""));
        let heard = heard.recv().unwrap();
        assert!(heard.head.starts_with("POST /start HTTP/1.1\r\n"), "{}", heard.head);
        assert!(heard.head.to_lowercase().contains("authorization: bearer k1\r\n"), "{}", heard.head);
        assert_eq!(heard.body["job"], json!({ "rows": 3 }));
        assert_eq!(heard.body["secureParams"], json!({ "password": "horse" }));
        assert_eq!(heard.body["token"], "t0");
        let log = "http://dci.example/callbacks/6b0004f4686c827f5a609575/log";
        assert_eq!(heard.body["callbacks"]["log"], log);
    }

    #[test]
    fn another_answer_is_a_failure_that_is_shown() {
        for (status, code) in [("200 OK", 200), ("302 Found", 302), ("500 Internal Server Error", 500)] {
            let (listener, address) = listen();
            let long = format!("no disk {}", "x".repeat(10_000));
            let _heard = service(listener, vec![answer(status, "location: http://127.0.0.1:1/\r\n", &long)]);
            let outcome = give(address, &json!({}));
            assert_eq!(outcome.exit.code(), Some(1), "{status}");
            assert_eq!(outcome.control, [json!({ "facts": { "http_status": code } })]);
            let text = outcome.stderr;
            assert!(
                text.contains(&format!("has answered with {status}")) && text.contains("no disk"),
                "{text}"
            );
            assert!(text.len() < 5_000, "{}", text.len());
        }
    }

    #[test]
    fn a_service_that_is_busy_is_asked_again() {
        let (listener, address) = listen();
        let busy = answer("503 Service Unavailable", "retry-after: 0\r\n", "");
        let heard = service(listener, vec![busy.clone(), busy, answer("201 Created", "", "")]);
        let outcome = give(address, &json!({}));
        assert_eq!(outcome.exit.code(), Some(0), "{}", outcome.stderr);
        assert_eq!(heard.iter().count(), 3);
        assert!(outcome.stderr.contains("2 of 2"), "{}", outcome.stderr);
    }

    #[test]
    fn a_service_that_stays_busy_is_given_up() {
        let (listener, address) = listen();
        let busy = answer("503 Service Unavailable", "retry-after: 0\r\n", "come back later");
        let heard = service(listener, vec![busy.clone(), busy.clone(), busy]);
        let outcome = give(address, &json!({}));
        assert_eq!((outcome.exit.code(), heard.iter().count()), (Some(1), 3));
        assert!(outcome.stderr.ends_with("come back later\n"), "{}", outcome.stderr);
    }

    #[test]
    fn a_service_that_may_have_begun_is_not_asked_again() {
        let (listener, address) = listen();
        let heard = service(listener, vec![String::new(), answer("201 Created", "", "")]);
        let outcome = give(address, &json!({}));
        assert_eq!(outcome.exit.code(), Some(1));
        assert!(outcome.stderr.contains("may have begun with the task"), "{}", outcome.stderr);
        assert!(heard.recv().is_ok() && heard.try_recv().is_err());
    }

    #[test]
    fn a_service_that_is_not_there_is_a_failure() {
        let (listener, address) = listen();
        drop(listener);
        let settings = json!({ "url": format!("http://{address}/"), "connect_retries": 1 });
        let outcome = give(address, &json!({ "settings": settings }));
        assert_eq!((outcome.exit.code(), outcome.control.len()), (Some(1), 0));
        let text = outcome.stderr;
        assert_eq!(text.matches("the web service cannot be reached").count(), 2, "{text}");
        assert!(text.contains("refused") && !text.contains("horse"), "{text}");
    }

    #[test]
    fn an_address_of_a_task_is_asked_where_the_node_names_it() {
        for (allow, takes) in [(json!({}), false), (json!({ "allow": ["127.0.0.1"] }), true)] {
            let (listener, address) = listen();
            let heard = service(listener, vec![answer("201 Created", "", "")]);
            let task = json!({
                "_id": { "$oid": "6b0004f4686c827f5a609575" },
                "params": { "url": format!("http://{address}/of-the-task"), "rows": 3 },
                "worker": { "settings": {}, "engine_config": allow, "variables": {} },
                "callback": { "token": "t0", "url": "http://dci.example/callbacks/6b0004f4686c827f5a609575" },
            });
            let outcome = run(Command::new(env!("CARGO_BIN_EXE_disbatch-http")), &task);
            assert_eq!(outcome.exit.success(), takes, "{}", outcome.stderr);
            if takes {
                assert!(heard.recv().unwrap().head.starts_with("POST /of-the-task "));
            } else {
                assert!(outcome.stderr.contains("the address is the task's"), "{}", outcome.stderr);
                assert!(heard.try_recv().is_err());
            }
        }
    }

    #[test]
    fn hosts_that_are_not_allowed_are_not_asked() {
        let (listener, address) = listen();
        let heard = service(listener, vec![answer("201 Created", "", "")]);
        let outcome = give(address, &json!({ "engine_config": { "allow": ["*.example.com"] } }));
        assert_eq!(outcome.exit.code(), Some(1));
        assert!(outcome.stderr.contains("engines.http.allow"), "{}", outcome.stderr);
        assert!(heard.try_recv().is_err());
    }
}
