//! What a command asks of the world: its configuration, its server, and what the server serves. Each is found out when it is
//! first needed, so that a command that needs nothing is done at once.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use serde_json::Value;

use crate::api::{Api, JSON, decode};
use crate::command::Environment;
use crate::config::{Access, Config, Connection, Inside};
use crate::discovery::{self, Discovery, Mapping};
use crate::error::{Failure, Outcome};
use crate::flags::Given;
use crate::kept::Kept;
use crate::preferences::Preferences;
use crate::trace::Trace;

pub struct Session {
    pub environment: Environment,
    pub(crate) flags: Given,
    connection: OnceCell<Connection>,
    api: OnceCell<Rc<Api>>,
    discovery: RefCell<Option<Rc<Discovery>>>,
    warned: std::cell::Cell<usize>,
    trace: Option<Trace>,
    preferences: Preferences,
    /// What is to be said to the user besides what the server warned of.
    notes: RefCell<Vec<String>>,
    reads_input: bool,
}

impl Session {
    pub fn new(environment: Environment, flags: &Given) -> Self {
        Self {
            environment,
            flags: flags.clone(),
            connection: OnceCell::new(),
            api: OnceCell::new(),
            discovery: RefCell::default(),
            warned: std::cell::Cell::new(0),
            trace: None,
            preferences: Preferences::default(),
            notes: RefCell::default(),
            reads_input: false,
        }
    }

    /// Says that the command reads standard input itself.
    pub fn reading_input(mut self, reads: bool) -> Self {
        self.reads_input = reads;
        self
    }

    /// Logs what is sent and answered, as `-v` says.
    pub fn traced(mut self, trace: Trace) -> Self {
        self.trace = Some(trace.at(self.flags.int("v")));
        self
    }

    /// Lets only those credential plug-ins run that the user's preferences allow.
    pub fn with_preferences(mut self, preferences: Preferences) -> Self {
        self.preferences = preferences;
        self
    }

    /// Where the configuration is.
    pub fn access(&self) -> Access {
        Access::new(&self.environment, &self.flags)
    }

    /// The merged configuration, before flags.
    pub fn config(&self) -> Outcome<Config> {
        self.access().load(true)
    }

    pub fn connection(&self) -> Outcome<&Connection> {
        if let Some(connection) = self.connection.get() {
            return Ok(connection);
        }
        let config = Config { reads_input: self.reads_input, ..self.config()? };
        let mut made = Connection::new(&config, Inside::of(&self.environment).as_ref(), &self.flags)?;
        for (place, text) in &made.of_pod {
            self.log(4, place, text);
        }
        if made.client.proxy.is_none() {
            made.client.proxy = crate::config::proxy::of(&self.environment, &made.client.server);
        }
        if let Some(plugin) = &made.plugin {
            self.preferences.allows_plugin(&self.environment, plugin).map_err(Failure::Message)?;
        }
        Ok(self.connection.get_or_init(|| made))
    }

    /// A line of the log, at this level of `-v` and above.
    fn log(&self, level: i64, place: &str, text: &str) {
        if let Some(trace) = &self.trace {
            trace.told(level, place, text);
        }
    }

    pub fn api(&self) -> Outcome<Rc<Api>> {
        if let Some(api) = self.api.get() {
            return Ok(api.clone());
        }
        let made = Rc::new(Api::new(self.connection()?, self.trace.clone())?);
        Ok(self.api.get_or_init(|| made).clone())
    }

    pub fn namespace(&self) -> Outcome<String> {
        Ok(self.connection()?.namespace.clone())
    }

    /// Whether the namespace was said by a flag, so that objects of another are refused.
    pub fn namespace_given(&self) -> Outcome<bool> {
        Ok(self.connection()?.namespace_given)
    }

    /// What the server serves, from the cache on disk while that is fresh.
    pub async fn discovery(&self) -> Outcome<Rc<Discovery>> {
        if let Some(known) = self.discovery.borrow().clone() {
            return Ok(known);
        }
        let place = discovery::cache::Place::new(&self.environment, &self.flags, self.connection()?);
        let found = match discovery::cache::read(&place) {
            Some(cached) => cached,
            None => self.discover().await?,
        };
        let found = Rc::new(found);
        *self.discovery.borrow_mut() = Some(found.clone());
        Ok(found)
    }

    /// What the server serves now.
    pub async fn rediscover(&self) -> Outcome<Rc<Discovery>> {
        let found = Rc::new(self.discover().await?);
        *self.discovery.borrow_mut() = Some(found.clone());
        Ok(found)
    }

    async fn discover(&self) -> Outcome<Discovery> {
        let found = discovery::fetch(&*self.api()?, &Kept::of(self)?).await?;
        let place = discovery::cache::Place::new(&self.environment, &self.flags, self.connection()?);
        discovery::cache::write(&place, &found);
        Ok(found)
    }

    /// What the server answers to a path that is asked for again and again.
    pub async fn kept(&self, path: &str) -> Outcome<Value> {
        let api = self.api()?;
        // A limit that the user gave goes with every request.
        let patience = if path.contains('?') { "&timeout=" } else { "?timeout=" };
        let limited =
            if api.is_limited() { path.to_owned() } else { format!("{path}{patience}{}", discovery::PATIENCE) };
        decode(&Kept::of(self)?.get(&api, &limited, JSON).await?)
    }

    /// The resource that a word of the command line means. What was remembered may be old: who finds nothing asks again, once.
    pub async fn mapping(&self, word: &str) -> Outcome<Mapping> {
        if self.discovery.borrow().is_none() && !word.contains('.') {
            // Most commands are about something of the first group, and need to know of nothing else.
            let place = discovery::cache::Place::new(&self.environment, &self.flags, self.connection()?);
            if let Some(mapping) = discovery::cache::in_first_group(&place, word) {
                return Ok(mapping);
            }
        }
        let known = self.discovery().await?;
        if let Some(mapping) = known.resource(word) {
            for other in known.also_meant(word) {
                let note = format!("short name {word:?} could also match lower priority resource {other}");
                let mut notes = self.notes.borrow_mut();
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
            return Ok(mapping.clone());
        }
        if !known.fresh
            && let Some(mapping) = self.rediscover().await?.resource(word)
        {
            return Ok(mapping.clone());
        }
        let (resource, group) = word.split_once('.').unwrap_or((word, ""));
        Err(Failure::NoMatch { resource: resource.to_owned(), group: group.to_owned(), version: String::new() })
    }

    /// The resource of a kind, if the server has it.
    pub async fn mapping_of_kind(&self, api_version: &str, kind: &str) -> Outcome<Option<Mapping>> {
        let known = self.discovery().await?;
        if let Some(mapping) = known.kind(api_version, kind) {
            return Ok(Some(mapping.clone()));
        }
        if known.fresh {
            return Ok(None);
        }
        Ok(self.rediscover().await?.kind(api_version, kind).cloned())
    }

    pub fn take_warnings(&self) -> Vec<String> {
        let warnings = self.api.get().map(|api| api.take_warnings()).unwrap_or_default();
        self.warned.set(self.warned.get() + warnings.len());
        self.notes.take().into_iter().chain(warnings).collect()
    }

    /// `--warnings-as-errors`.
    pub fn end(&self) -> Outcome {
        match self.warned.get() {
            0 => Ok(()),
            _ if !self.flags.is("warnings-as-errors") => Ok(()),
            1 => Err(Failure::message("1 warning received")),
            many => Err(Failure::message(format!("{many} warnings received"))),
        }
    }
}
