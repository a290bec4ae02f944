//! `pod-template-hash` and `controller-revision-hash`'s kin: the very strings that upstream computes, so that a cluster can change hands without a rollout.
//!
//! Upstream hashes a debug print of the Go struct: every field in declaration order with its Go type, set or not. What that print
//! looks like follows from the layout of the structs, which `template_layout.txt` lists, and from a handful of rules written down here.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::OnceLock;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use rustc_hash::FxBuildHasher;
use serde_json::Value;

use super::hash::{Fnv32, safe_encode};

/// The hash of a template, different for every collision count.
pub fn template_hash(template: &PodTemplateSpec, collision_count: Option<i32>) -> String {
    let value = serde_json::to_value(template).expect("a template is plain data, which always encodes");
    let mut hash = Fnv32::new();
    hash.write(print(&value).as_bytes());
    if let Some(count) = collision_count {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&count.to_le_bytes());
        hash.write(&bytes);
    }
    safe_encode(hash.finish())
}

/// The print that is hashed.
fn print(template: &Value) -> String {
    let mut out = String::with_capacity(16 * 1024);
    Printer { layout: layout(), out: &mut out }.value("core:PodTemplateSpec", Some(template), Label::Shown);
    out
}

/// Whether the type goes before the value: it does for fields, it does not for elements and behind pointers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Shown,
    Hidden,
}

struct Field {
    name: &'static str,
    type_: &'static str,
    /// `None` if the fields of the type are the object's own.
    json: Option<&'static str>,
}

#[derive(Default)]
struct Layout {
    structs: HashMap<&'static str, Vec<Field>, FxBuildHasher>,
    named: HashMap<&'static str, &'static str, FxBuildHasher>,
}

fn layout() -> &'static Layout {
    static LAYOUT: OnceLock<Layout> = OnceLock::new();
    LAYOUT.get_or_init(|| {
        let mut layout = Layout::default();
        let mut current = "";
        for line in include_str!("template_layout.txt").lines() {
            let words: Vec<&'static str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["#", ..] | [] => {}
                ["=", name, type_] => {
                    layout.named.insert(name, type_);
                }
                [name] => {
                    current = name;
                    layout.structs.insert(name, Vec::new());
                }
                [name, type_, json] => {
                    let json = (*json != "-").then_some(*json);
                    layout.structs.entry(current).or_default().push(Field { name, type_, json });
                }
                _ => unreachable!("the layout is part of the program, and its lines have one, three or no words"),
            }
        }
        layout
    })
}

struct Printer<'a> {
    layout: &'static Layout,
    out: &'a mut String,
}

impl Printer<'_> {
    fn value(&mut self, type_: &str, value: Option<&Value>, label: Label) {
        let value = value.filter(|value| !value.is_null());
        if let Some(target) = type_.strip_prefix('*') {
            return self.pointer(type_, target, value, label);
        }
        if label == Label::Shown {
            self.label(type_);
        }
        let underlying = self.layout.named.get(type_).copied().unwrap_or(type_);
        if let Some(element) = underlying.strip_prefix("[]") {
            self.list(element, value);
        } else if let Some(element) = underlying.strip_prefix("map[string]") {
            self.map(element, value);
        } else if let Some(fields) = self.layout.structs.get(underlying) {
            self.fields(fields, value);
        } else {
            self.leaf(underlying, value);
        }
    }

    fn label(&mut self, type_: &str) {
        let _ = write!(self.out, "({})", type_.replace("core:", "v1.").replace("meta:", "v1."));
    }

    fn pointer(&mut self, type_: &str, target: &str, value: Option<&Value>, label: Label) {
        match (value, label) {
            (None, Label::Hidden) => self.out.push_str("<nil>"),
            (None, Label::Shown) => {
                self.label(type_);
                self.out.push_str("<nil>");
            }
            (Some(_), Label::Hidden) => {
                self.out.push_str("<*>");
                self.value(target, value, Label::Hidden);
            }
            (Some(_), Label::Shown) => {
                self.label(type_);
                self.value(target, value, Label::Hidden);
            }
        }
    }

    /// An empty list comes out of upstream's wire format as no list.
    fn list(&mut self, element: &str, value: Option<&Value>) {
        match value.and_then(Value::as_array) {
            Some(values) if !values.is_empty() => {
                self.out.push('[');
                for (at, value) in values.iter().enumerate() {
                    if at > 0 {
                        self.out.push(' ');
                    }
                    self.value(element, Some(value), Label::Hidden);
                }
                self.out.push(']');
            }
            _ => self.out.push_str("<nil>"),
        }
    }

    /// In the order of the keys.
    fn map(&mut self, element: &str, value: Option<&Value>) {
        match value.and_then(Value::as_object) {
            Some(entries) if !entries.is_empty() => {
                let mut entries: Vec<_> = entries.iter().collect();
                entries.sort_by_key(|(key, _)| *key);
                self.out.push_str("map[");
                for (at, (key, value)) in entries.into_iter().enumerate() {
                    if at > 0 {
                        self.out.push(' ');
                    }
                    let _ = write!(self.out, "{key}:");
                    self.value(element, Some(value), Label::Hidden);
                }
                self.out.push(']');
            }
            _ => self.out.push_str("<nil>"),
        }
    }

    fn fields(&mut self, fields: &[Field], value: Option<&Value>) {
        self.out.push('{');
        for (at, field) in fields.iter().enumerate() {
            if at > 0 {
                self.out.push(' ');
            }
            let _ = write!(self.out, "{}:", field.name);
            let inner = match field.json {
                Some(name) => value.and_then(|value| value.get(name)),
                None => value,
            };
            self.value(field.type_, inner, Label::Shown);
        }
        self.out.push('}');
    }

    fn leaf(&mut self, type_: &str, value: Option<&Value>) {
        let text = value.and_then(Value::as_str);
        let written = match type_ {
            "string" | "types.UID" => write!(self.out, "{}", text.unwrap_or_default()),
            "bool" => write!(self.out, "{}", value.and_then(Value::as_bool).unwrap_or_default()),
            // A template has no times of its own; this is how an unset one prints.
            "meta:Time" => {
                write!(self.out, "{{Time:(time.Time){{wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}}}")
            }
            "intstr.IntOrString" => write!(
                self.out,
                "{{Type:(intstr.Type){} IntVal:(int32){} StrVal:(string){}}}",
                i32::from(text.is_some()),
                value.and_then(Value::as_i64).unwrap_or_default(),
                text.unwrap_or_default(),
            ),
            "resource.Quantity" => write!(self.out, "{}", quantity(text.unwrap_or("0"))),
            _ => write!(self.out, "{}", value.and_then(Value::as_i64).unwrap_or_default()),
        };
        written.expect("writing to a string cannot fail");
    }
}

/// How a quantity, written in its canonical form, prints: number, scale, and the text itself where upstream keeps it.
fn quantity(text: &str) -> String {
    let fields = |value: i64, scale: i32, kept: &str, format: &str| {
        format!(
            "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
             d:(resource.infDecAmount){{Dec:(*inf.Dec)<nil>}} s:(string){kept} Format:(resource.Format){format}}}"
        )
    };
    if text == "0" {
        return fields(0, 0, text, "DecimalSI");
    }
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = unsigned.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let shifted = format!("{whole}{fraction}");
    let digits = shifted.parse::<i64>().ok();
    let (exponent, binary, format) = suffix_of(suffix);
    if binary {
        let value = digits.filter(|_| fraction.is_empty()).and_then(|digits| digits.checked_shl_exact(exponent));
        if let (Some(digits), Some(value)) = (digits, value) {
            let kept = if exponent % 10 == 0 && digits & 7 != 0 { text } else { "" };
            return fields(sign * value, 0, kept, format);
        }
    } else if shifted.len() <= 18
        && let Some(digits) = digits
    {
        let scale = exponent - i32::try_from(fraction.len()).unwrap_or(i32::MAX);
        let kept = if scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0') { text } else { "" };
        return fields(sign * digits, scale, kept, format);
    }
    // Larger than 64 bits hold: an amount of any size, whose text stands for it here.
    format!(
        "{{i:(resource.int64Amount){{value:(int64)0 scale:(resource.Scale)0}} d:(resource.infDecAmount){{Dec:(*inf.Dec){text}}} s:(string) Format:(resource.Format){format}}}"
    )
}

/// Exponent, whether it is one of 2, and the name of the format.
fn suffix_of(suffix: &str) -> (i32, bool, &'static str) {
    const DECIMAL: [(&str, i32); 10] =
        [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
    const BINARY: [(&str, i32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
    let find = |table: &[(&str, i32)]| table.iter().find(|(name, _)| *name == suffix).map(|(_, exponent)| *exponent);
    if let Some(exponent) = find(&DECIMAL) {
        return (exponent, false, "DecimalSI");
    }
    if let Some(exponent) = find(&BINARY) {
        return (exponent, true, "BinarySI");
    }
    let exponent = suffix.strip_prefix(['e', 'E']).and_then(|digits| digits.parse().ok());
    (exponent.unwrap_or_default(), false, "DecimalExponent")
}

/// Shifting that fails where bits would be lost.
trait CheckedShl: Sized {
    fn checked_shl_exact(self, by: i32) -> Option<Self>;
}

impl CheckedShl for i64 {
    fn checked_shl_exact(self, by: i32) -> Option<Self> {
        let factor = 1_i64.checked_shl(u32::try_from(by).ok()?).filter(|factor| *factor > 0)?;
        self.checked_mul(factor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_print_names_every_field_in_order_with_its_type() {
        let text = print(&json!({"metadata": {"labels": {"b": "2", "a": "1"}}, "spec": {"containers": [{
            "name": "c",
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}},
            "readinessProbe": {"httpGet": {"port": "http"}},
        }], "terminationGracePeriodSeconds": 30}}));
        assert!(
            text.starts_with("(v1.PodTemplateSpec){ObjectMeta:(v1.ObjectMeta){Name:(string) GenerateName:(string) ")
        );
        for part in [
            "CreationTimestamp:(v1.Time){Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}} ",
            "DeletionTimestamp:(*v1.Time)<nil> ",
            "Labels:(map[string]string)map[a:1 b:2] Annotations:(map[string]string)<nil> ",
            "Spec:(v1.PodSpec){Volumes:([]v1.Volume)<nil> InitContainers:([]v1.Container)<nil> ",
            "Containers:([]v1.Container)[{Name:(string)c Image:(string) Command:([]string)<nil> ",
            "Ports:([]v1.ContainerPort)[{Name:(string) HostPort:(int32)0 ContainerPort:(int32)80 Protocol:(v1.Protocol)TCP HostIP:(string)}] ",
            "Limits:(v1.ResourceList)map[cpu:{i:(resource.int64Amount){value:(int64)100 scale:(resource.Scale)-3} \
             d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string)100m Format:(resource.Format)DecimalSI} \
             memory:{i:(resource.int64Amount){value:(int64)1073741824 scale:(resource.Scale)0} ",
            "ReadinessProbe:(*v1.Probe){ProbeHandler:(v1.ProbeHandler){Exec:(*v1.ExecAction)<nil> HTTPGet:(*v1.HTTPGetAction){Path:(string) \
             Port:(intstr.IntOrString){Type:(intstr.Type)1 IntVal:(int32)0 StrVal:(string)http} ",
            "TerminationGracePeriodSeconds:(*int64)30 ",
        ] {
            assert!(text.contains(part), "{part}\nis missing in\n{text}");
        }
    }

    #[test]
    fn the_text_of_a_quantity_is_kept_where_upstream_keeps_it() {
        for (text, expected) in [
            (
                "100m",
                "{value:(int64)100 scale:(resource.Scale)-3} d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string)100m",
            ),
            (
                "1",
                "{value:(int64)1 scale:(resource.Scale)0} d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string)1 ",
            ),
            (
                "128Mi",
                "{value:(int64)134217728 scale:(resource.Scale)0} d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string) ",
            ),
            (
                "129Mi",
                "{value:(int64)135266304 scale:(resource.Scale)0} d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string)129Mi ",
            ),
            (
                "2k",
                "{value:(int64)2 scale:(resource.Scale)3} d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string)2k ",
            ),
        ] {
            let printed = quantity(text);
            assert!(printed.contains(expected), "{text}: {printed}");
        }
    }

    #[test]
    fn collisions_change_the_hash_and_nothing_else_does() {
        let template = PodTemplateSpec::default();
        let plain = template_hash(&template, None);
        assert_eq!(plain, template_hash(&template.clone(), None));
        assert_ne!(plain, template_hash(&template, Some(1)));
        assert_ne!(template_hash(&template, Some(0)), template_hash(&template, Some(1)));
        assert!(plain.len() <= 10);
    }
}
