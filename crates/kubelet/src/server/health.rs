//! Health checks by name, and all of them together.

use http::StatusCode;

use super::answer::{self, Answer};

/// A check: its name, and what it came to.
pub type Check = (&'static str, Result<(), String>);

/// Answers for one check or all of them.
pub fn answer(checks: &[Check], asked: Option<&str>, verbose: bool) -> Answer {
    let (status, text) = report(checks, asked, verbose);
    answer::text(status, text)
}

fn report(checks: &[Check], asked: Option<&str>, verbose: bool) -> (StatusCode, String) {
    if let Some(name) = asked {
        return match checks.iter().find(|(known, _)| *known == name) {
            None => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
            Some((_, Ok(()))) => (StatusCode::OK, "ok".to_owned()),
            Some((_, Err(why))) => (StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n")),
        };
    }
    let mut text = String::new();
    for (name, result) in checks {
        match result {
            Ok(()) => text.push_str(&format!("[+]{name} ok\n")),
            // Details may be nobody's business; the check by its own name tells them.
            Err(_) => text.push_str(&format!("[-]{name} failed: reason withheld\n")),
        }
    }
    match checks.iter().all(|(_, result)| result.is_ok()) {
        true if verbose => (StatusCode::OK, format!("{text}healthz check passed\n")),
        true => (StatusCode::OK, "ok".to_owned()),
        false => (StatusCode::INTERNAL_SERVER_ERROR, format!("{text}healthz check failed\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_reported_as_upstream_does() {
        let good: [Check; 2] = [("ping", Ok(())), ("syncloop", Ok(()))];
        let bad: [Check; 2] = [("ping", Ok(())), ("syncloop", Err("stuck".into()))];
        let table = [
            (&good, None, false, 200, "ok"),
            (&good, None, true, 200, "[+]ping ok\n[+]syncloop ok\nhealthz check passed\n"),
            (&good, Some("ping"), false, 200, "ok"),
            (&good, Some("other"), false, 404, "404 page not found\n"),
            (&bad, None, false, 500, "[+]ping ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"),
            (&bad, Some("syncloop"), false, 500, "internal server error: stuck\n"),
        ];
        for (checks, asked, verbose, status, text) in table {
            let (found, said) = report(checks, asked, verbose);
            assert_eq!((found.as_u16(), said.as_str()), (status, text));
        }
    }
}
