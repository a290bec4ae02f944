//! Bootstrap tokens: `id.secret`, kept in Secrets of `kube-system`, with which new nodes ask for their certificates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::rest::User;
use machinery::{Value, time, value};
use rules::names::{BOOTSTRAP_TOKEN, BOOTSTRAP_TOKEN_PREFIX};
use storage::Lookup;

use super::service_accounts::same;

const GROUP: &str = "system:bootstrappers";

/// The user of a bootstrap token, if its Secret says so.
pub fn authenticate(lookup: &dyn Lookup, token: &str, now: jiff::Timestamp) -> Option<User> {
    let (id, secret) = split(token)?;
    let object = lookup.object("", "secrets", "kube-system", &format!("{BOOTSTRAP_TOKEN_PREFIX}{id}"))?;
    if object.meta().deleting {
        return None;
    }
    user(&object.to_value(), id, secret, now)
}

/// Six characters, a dot, sixteen characters.
fn split(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let fine = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    (fine(id, 6) && fine(secret, 16)).then_some((id, secret))
}

fn user(secret: &Value, id: &str, shown: &str, now: jiff::Timestamp) -> Option<User> {
    let data = |key: &str| {
        let bytes = STANDARD.decode(secret["data"][key].as_str().unwrap_or_default()).unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default()
    };
    let holds = value::text(secret, "type") == BOOTSTRAP_TOKEN
        && same(data("token-secret").as_bytes(), shown.as_bytes())
        && data("token-id") == id
        && data("usage-bootstrap-authentication") == "true";
    let expiration = data("expiration");
    let expired = !expiration.is_empty() && time::parse_clamped(&expiration).is_none_or(|at| at <= now);
    if !holds || expired {
        return None;
    }
    let mut groups = vec![GROUP.to_owned()];
    for group in data("auth-extra-groups").split(',').map(str::trim).filter(|group| !group.is_empty()) {
        // One bad group spoils the token: better no access than another one.
        if !is_bootstrap_group(group) {
            return None;
        }
        if !groups.iter().any(|known| known == group) {
            groups.push(group.to_owned());
        }
    }
    groups.sort();
    Some(User::new(format!("system:bootstrap:{id}"), groups.iter().map(String::as_str)))
}

fn is_bootstrap_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else { return false };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    rest.len() <= 256
        && rest.bytes().all(|byte| plain(byte) || byte == b':' || byte == b'-')
        && rest.bytes().last().is_some_and(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secret(changes: &[(&str, &str)]) -> Value {
        let mut data = json!({});
        let base =
            [("token-id", "abcdef"), ("token-secret", "0123456789abcdef"), ("usage-bootstrap-authentication", "true")];
        for (key, text) in base.iter().chain(changes) {
            data[*key] = json!(STANDARD.encode(text));
        }
        json!({"type": BOOTSTRAP_TOKEN, "data": data})
    }

    #[test]
    fn a_token_holds_only_with_everything_right() {
        let now: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let check = |changes: &[(&str, &str)]| user(&secret(changes), "abcdef", "0123456789abcdef", now);
        let found = check(&[("auth-extra-groups", "system:bootstrappers:kubeadm:default-node-token")]).expect("a user");
        assert_eq!(found.name, "system:bootstrap:abcdef");
        assert_eq!(
            found.groups,
            ["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated"]
        );
        assert!(check(&[("expiration", "2026-01-01T00:00:01Z")]).is_some());
        assert!(check(&[("expiration", "9999-12-31T23:59:59Z")]).is_some());
        for wrong in [
            ("expiration", "2025-12-31T23:59:59Z"),
            ("expiration", "nonsense"),
            ("token-secret", "0123456789abcdee"),
            ("token-id", "abcdeg"),
            ("usage-bootstrap-authentication", "false"),
            ("auth-extra-groups", "system:masters"),
        ] {
            assert!(check(&[wrong]).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn tokens_have_one_shape() {
        assert_eq!(split("abcdef.0123456789abcdef"), Some(("abcdef", "0123456789abcdef")));
        for odd in [
            "abcdef",
            "abcde.0123456789abcdef",
            "ABCDEF.0123456789abcdef",
            "abcdef.0123456789abcdef0",
            "abcdef.0123456789abcde/",
        ] {
            assert_eq!(split(odd), None, "{odd}");
        }
    }
}
