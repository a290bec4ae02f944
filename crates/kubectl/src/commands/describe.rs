//! `kubectl describe`: objects with what belongs to them. The texts are those of crate `describe`.

use describe::{Answers, Describer, Settings};
use serde_json::Value;

use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::resource::{Builder, Found, Info};

pub static COMMAND: Command = Command {
    name: "describe",
    aliases: &[],
    usage: "(-f FILENAME | TYPE [NAME_PREFIX | -l label] | TYPE/NAME)",
    short: "Show details of a specific resource or group of resources",
    flags: &[
        sets::FILENAME,
        sets::SELECTOR,
        sets::ALL_NAMESPACES,
        sets::CHUNK_SIZE,
        &[Flag::bool("show-events", "Show events about the objects.").default("true")],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    let mut builder = Builder::from_flags(&invocation.session, &invocation.flags)?;
    if builder.arguments.is_empty() && builder.has_no_files() {
        return Err(Failure::message(
            "You must specify the type of resource to describe. Use \"kubectl api-resources\" for a complete list of supported resources.\n",
        ));
    }
    builder.types_mean_all = true;
    builder.enforce_namespace = false;
    let mut found = builder.infos(&invocation.session, &mut invocation.streams).await?;
    let mut errors = found.errors;
    if !builder.has_no_files() {
        // What files name is read, and each that is not there is told by itself.
        let api = invocation.session.api()?;
        let mut read = Vec::new();
        for mut info in found.infos {
            match crate::resource::named(&api, &info.namespace, &info.path(), crate::api::JSON).await {
                Ok(object) => {
                    info.refresh(object);
                    read.push(info);
                }
                Err(error) => errors.push(error),
            }
        }
        found.infos = read;
    }
    // A name that nobody has may be the beginning of others.
    if errors.len() == 1 && errors[0].is_not_found() && builder.arguments.len() == 2 {
        return beginning(invocation, &builder, errors.remove(0)).await;
    }
    let mut shown = 0;
    let events = invocation.flags.is("show-events")
        && (is_one(found.infos.len(), errors.len()) || invocation.flags.changed("show-events"));
    for info in &found.infos {
        match text(invocation, info, events).await {
            Ok(text) => {
                let text = if shown == 0 { text } else { format!("\n\n{text}") };
                invocation.print(&text)?;
                shown += 1;
            }
            Err(error) => errors.push(error),
        }
    }
    if shown == 0 && errors.is_empty() {
        let nothing = if builder.all_namespaces {
            "No resources found".to_owned()
        } else {
            format!("No resources found in {} namespace.", builder.namespace)
        };
        invocation.streams.error(&nothing);
    }
    Failure::all(errors)
}

/// Whether one object was asked for: events of several are only shown to who asks for them, even where all but one are missing.
fn is_one(found: usize, missing: usize) -> bool {
    found == 1 && missing == 0
}

async fn beginning(invocation: &mut Invocation, builder: &Builder, original: Failure) -> Outcome {
    let prefix = builder.arguments[1].clone();
    let mut all = builder.clone();
    all.arguments.truncate(1);
    let Ok(infos) = all.infos(&invocation.session, &mut invocation.streams).await.and_then(Found::all) else {
        return Err(original);
    };
    let mut found = false;
    for info in infos.iter().filter(|info| info.name.starts_with(&prefix)) {
        found = true;
        let events = invocation.flags.is("show-events") && invocation.flags.changed("show-events");
        let text = text(invocation, info, events).await?;
        invocation.say(&text)?;
    }
    if found { Ok(()) } else { Err(original) }
}

/// The description of an object, read as its describer wants it.
async fn text(invocation: &Invocation, info: &Info, show_events: bool) -> Outcome<String> {
    let describer = describe::describer(&info.mapping.group, &info.mapping.kind);
    let object = read(invocation, &describer, info).await?;
    let limit = u64::try_from(invocation.flags.int("chunk-size")).unwrap_or_default();
    let mut answers = Answers::default();
    for question in describer.reads(&object, show_events) {
        let answer = all(invocation, &question.path(limit)).await.map_err(|error| describe::Failure {
            reason: match &error {
                Failure::Api(api) => api.reason.map(|reason| reason.to_string()).unwrap_or_default(),
                _ => String::new(),
            },
            message: error.bare(),
        });
        answers.insert(question, answer);
    }
    let settings = Settings { show_events, now: jiff::Timestamp::now(), zone: jiff::tz::TimeZone::system() };
    describer.text(&object, &answers, &settings).map_err(|error| Failure::Message(error.to_string()))
}

/// The object in the version that the describer reads.
async fn read(invocation: &Invocation, describer: &Describer, info: &Info) -> Outcome<Value> {
    let api = invocation.session.api()?;
    let mapping = &info.mapping;
    for resource in describer.resources() {
        if resource.group == mapping.group
            && resource.version == mapping.version
            && resource.resource == mapping.resource
        {
            break;
        }
        let namespace = if mapping.namespaced { info.namespace.as_str() } else { "" };
        let path = format!("{}/{}", resource.path(namespace), crate::discovery::segment(&info.name));
        match api.get(&path).await {
            Ok(object) => return Ok(object),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(info.object.clone())
}

/// An answer, with all of its chunks.
async fn all(invocation: &Invocation, path: &str) -> Outcome<Value> {
    let api = invocation.session.api()?;
    let mut answer = api.get(path).await?;
    loop {
        let next = machinery::value::text(&answer, "metadata.continue").to_owned();
        if next.is_empty() {
            return Ok(answer);
        }
        let separator = if path.contains('?') { '&' } else { '?' };
        let token = crate::discovery::query(&[("continue", &next)]);
        let mut more = api.get(&format!("{path}{separator}{}", token.trim_start_matches('?'))).await?;
        let items = more.get_mut("items").map(Value::take);
        if let (Some(Value::Array(into)), Some(Value::Array(items))) = (answer.get_mut("items"), items) {
            into.extend(items);
        }
        answer["metadata"] = more["metadata"].take();
    }
}

#[cfg(test)]
mod tests {
    use super::is_one;

    #[test]
    fn one_of_several_names_is_not_one_object() {
        assert!(is_one(1, 0));
        assert!(!is_one(1, 1) && !is_one(2, 0));
    }
}
