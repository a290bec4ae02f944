use super::*;

#[test]
fn texts_are_quoted_as_go_quotes_them() {
    for (text, quoted) in [
        ("a \"b\" \\ 'c'", r#""a \"b\" \\ 'c'""#),
        ("\n\t\r\0\u{7}\u{7f}", r#""\n\t\r\x00\a\x7f""#),
        ("\u{e9}\u{301}\u{200b}\u{2028}\u{a0}", "\"\u{e9}\u{301}\\u200b\\u2028\\u00a0\""),
        ("\u{1f980}\u{10fffe}", "\"\u{1f980}\\U0010fffe\""),
    ] {
        assert_eq!(go_quote(text), quoted);
    }
}

#[test]
fn messages_are_upstreams() {
    let deployments = GroupResource::new("apps", "deployments");
    assert_eq!(ApiError::not_found(&deployments, "web").message, "deployments.apps \"web\" not found");
    let pods = GroupResource::new("", "pods");
    assert_eq!(
        ApiError::stale(&pods, "a").message,
        "Operation cannot be fulfilled on pods \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    let port = FieldError::invalid("spec.ports[0].port", 0, "must be between 1 and 65535, inclusive");
    let kind = FieldError::not_supported("spec.type", "X", ["A", "B"]);
    assert_eq!(
        ApiError::invalid("", "Service", "s", &[port.clone(), kind, port]).message,
        "Service \"s\" is invalid: [spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive, spec.type: Unsupported value: \"X\": supported values: \"A\", \"B\"]"
    );
}

#[test]
fn a_status_survives_the_wire() {
    let errors = [FieldError::required("spec", "")];
    let error = ApiError::invalid("apps", "Deployment", "web", &errors).retry_after(3);
    assert_eq!(ApiError::from_value(error.code, &error.to_value()), error);
}

#[test]
fn a_name_is_quoted_as_go_quotes_it() {
    let error = ApiError::invalid("example.com", "Ship", "\0", &[FieldError::required("spec", "")]);
    assert_eq!(error.message, "Ship.example.com \"\\x00\" is invalid: spec: Required value");
}
