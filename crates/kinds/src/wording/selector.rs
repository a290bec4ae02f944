//! A label selector, as Go prints the struct that holds it.

use machinery::{Value, value};

/// A label selector as Go prints the struct.
pub fn go_selector(selector: &Value) -> String {
    let mut labels: Vec<String> = value::at(selector, "matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, label)| format!("{key}: {},", label.as_str().unwrap_or_default()))
        .collect();
    labels.sort_unstable();
    let expressions = value::list(selector, "matchExpressions").iter().map(|expression| {
        let values = value::list(expression, "values").iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
        let (key, operator) = (value::text(expression, "key"), value::text(expression, "operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.concat(),
        expressions.collect::<String>()
    )
}
