//! What the fields of a kubeconfig may be, and how Go's reader refuses what they are not.

use machinery::patch::json_type;
use serde_json::{Map, Value};

use super::file::{Field, Section};

/// How Go refuses a value of another type.
pub(super) fn unfit(value: &Value, place: &str, wanted: &str) -> String {
    let given = json_type(value);
    format!("json: cannot unmarshal {given} into Go struct field {place} of type {wanted}")
}

/// Refuses an entry with a field of another type, or with bytes that are none. What it says is never quoted.
pub(super) fn typed(section: Section, content: &Map<String, Value>) -> Result<(), String> {
    let place = |field: &str| format!("{}.{}.{}.{field}", section.kind(), section.list(), section.one());
    for (name, field) in section.fields() {
        let Some(value) = content.get(*name).filter(|value| !value.is_null()) else { continue };
        match field {
            Field::Text | Field::Path if !value.is_string() => return Err(unfit(value, &place(name), "string")),
            Field::Bool if !value.is_boolean() => return Err(unfit(value, &place(name), "bool")),
            Field::Bytes => {
                let text = value.as_str().ok_or_else(|| unfit(value, &place(name), "[]uint8"))?;
                bytes(text)?;
            }
            _ => {}
        }
    }
    let command = content.get("exec").and_then(|exec| exec.get("command")).filter(|command| !command.is_null());
    match command {
        Some(command) if !command.is_string() => Err(unfit(command, "ExecConfig.users.user.exec.command", "string")),
        _ => Ok(()),
    }
}

/// What base64 stands for; where Go's reader stops, if it is none.
pub fn bytes(text: &str) -> Result<Vec<u8>, String> {
    use base64::Engine as _;
    let text: String = text.split_ascii_whitespace().collect();
    base64::engine::general_purpose::STANDARD.decode(&text).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            base64::DecodeError::InvalidLength(_) => text.len() / 4 * 4,
            base64::DecodeError::InvalidPadding if text.contains('=') => text.len(),
            base64::DecodeError::InvalidPadding => text.len() / 4 * 4,
        };
        format!("illegal base64 data at input byte {at}")
    })
}
