//! Names, tags and digests of images.

use machinery::Value;
use regex::Regex;

use crate::Error;
use crate::fields::{FieldSpec, Make};
use crate::kustomization::Image;
use crate::resources::Resources;

pub fn set(resources: &mut Resources, image: &Image, specs: &[FieldSpec]) -> Result<(), Error> {
    let pattern = format!("^{}(:[a-zA-Z0-9_.{{}}-]*)?(@sha256:[a-zA-Z0-9_.{{}}-]*)?$", image.name);
    let pattern = Regex::new(&pattern).map_err(|error| Error::new(error.to_string()))?;
    for resource in resources.iter_mut() {
        if resource.kind() == "CustomResourceDefinition" {
            continue;
        }
        legacy(&mut resource.value, &pattern, image);
        for spec in specs {
            // Upstream makes no field here, whatever the spec says.
            spec.apply(resource, Make::Nothing, &mut |field| {
                let text = match &*field {
                    Value::String(text) => text.clone(),
                    Value::Null => return Ok(()),
                    other => other.to_string(),
                };
                if pattern.is_match(&text) {
                    *field = Value::String(changed(&text, image));
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Containers are found wherever they are, also in kinds that nobody configured.
fn legacy(value: &mut Value, pattern: &Regex, image: &Image) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| legacy(item, pattern, image)),
        Value::Object(fields) => {
            for (name, inner) in fields {
                legacy(inner, pattern, image);
                let Value::Array(items) = inner else { continue };
                if !["containers", "initContainers"].contains(&name.as_str()) {
                    continue;
                }
                for field in items.iter_mut().filter_map(|item| item.get_mut("image")) {
                    if let Some(text) = field.as_str().filter(|text| pattern.is_match(text)) {
                        *field = Value::String(changed(text, image));
                    }
                }
            }
        }
        _ => {}
    }
}

fn changed(text: &str, image: &Image) -> String {
    let (name, mut tag, mut digest) = split(text);
    let mut name = if image.new_name.is_empty() { name.to_owned() } else { image.new_name.clone() };
    if !image.new_tag.is_empty() {
        (tag, digest) = (image.new_tag.clone(), image.digest.clone());
    } else if !image.digest.is_empty() {
        (tag, digest) = (String::new(), image.digest.clone());
    } else if !image.tag_suffix.is_empty() {
        tag.push_str(&image.tag_suffix);
        digest.clear();
    }
    if !tag.is_empty() {
        name = format!("{name}:{tag}");
    }
    if digest.is_empty() { name } else { format!("{name}@{digest}") }
}

/// Name, tag and digest. A colon before the first slash is a port's.
fn split(image: &str) -> (&str, String, String) {
    let from = image.find('/').filter(|at| *at > 0).unwrap_or(0);
    let (at, colon) = (image[from..].find('@').map(|at| at + from), image[from..].find(':').map(|at| at + from));
    match (at, colon) {
        (None, None) => (image, String::new(), String::new()),
        (Some(at), colon) if colon.is_none_or(|colon| at < colon) => {
            (&image[..at], String::new(), image[at + 1..].to_owned())
        }
        (Some(at), Some(colon)) => (&image[..colon], image[colon + 1..at].to_owned(), image[at + 1..].to_owned()),
        (None, Some(colon)) => (&image[..colon], image[colon + 1..].to_owned(), String::new()),
        (Some(at), None) => (&image[..at], String::new(), image[at + 1..].to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_taken_apart() {
        for (image, name, tag, digest) in [
            ("nginx", "nginx", "", ""),
            ("nginx:1.2", "nginx", "1.2", ""),
            ("nginx@sha256:ab", "nginx", "", "sha256:ab"),
            ("nginx:1@sha256:ab", "nginx", "1", "sha256:ab"),
            ("localhost:5000/nginx:1", "localhost:5000/nginx", "1", ""),
        ] {
            assert_eq!(split(image), (name, tag.to_owned(), digest.to_owned()), "{image}");
        }
    }
}
