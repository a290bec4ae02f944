//! Starting: the sandbox, then containers one after the other.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hops::Stage;
use informer::EventType;
use k8s_openapi::api::core::v1::{Container, FileKeySelector, ImageVolumeSource, Secret};
use node::cri::v1;
use rules::owners::controller_uid;

use super::Worker;
use super::sync::Step;
use crate::cri_config::{self, container, env};
use crate::images::{Absent, Present};
use crate::pod::plan::{Cause, Start};
use crate::pod::spec::{self, Kind, Member};
use crate::pod::state::{Life, time};
use crate::status::Waiting;
use crate::volumes::mounts::{self, Image};
use crate::volumes::{self, Paths};

/// After a failure that may go away by itself.
const AGAIN: Duration = Duration::from_secs(10);
/// Bytes of a file of environment variables at most; more than a process can be given.
const ENV_FILE: u64 = 4 << 20;

/// A container that was not started: why, and when to try again.
pub(super) struct NotStarted {
    pub(super) waiting: Waiting,
    pub(super) again: Duration,
}

fn not_started(reason: &str, message: impl Into<String>) -> NotStarted {
    NotStarted { waiting: Waiting { reason: reason.to_owned(), message: message.into() }, again: AGAIN }
}

/// A container as it is specified now: what was tried with another specification says nothing of it.
fn attempt_key(member: &Member<'_>) -> String {
    format!("{}_{}", member.container.name, spec::hash(&member.container))
}

/// What containers are made with besides their own configuration.
struct Frame {
    users: Option<v1::UserNamespace>,
    abilities: cri_config::Abilities,
}

/// What became of a container's image. One that was there has cost no bytes.
fn pulled(hop: hops::Timer, ensured: &Result<Present, Absent>) -> hops::Timer {
    match ensured {
        Ok(present) if present.pulled => hop.amount(present.bytes).note(hops::Note::of(format_args!("pulled"))),
        Ok(_) => hop.note(hops::Note::of(format_args!("already present"))),
        Err(absent) => hop.note(hops::Note::of(format_args!("{}", absent.waiting.reason))),
    }
}

impl Worker {
    /// Makes the sandbox with this attempt.
    pub(super) async fn make_sandbox(&mut self, attempt: u32) -> Result<(), String> {
        let handler = self.runtime_handler().await?;
        let users = self.users(&handler)?;
        let (config, warnings) = self.sandbox_config(attempt, users).map_err(|e| e.to_string())?;
        for warning in warnings {
            self.shared.event(&self.pod, EventType::Warning, "DNSConfigForming", warning);
        }
        std::fs::create_dir_all(&config.log_directory).map_err(|e| format!("create pod log directory: {e}"))?;
        let hop = hops::stage(Stage::Sandbox, "run").of_pod(self.uid());
        let begun = Instant::now();
        let (runtime, class) = (self.shared.runtime.clone(), handler.clone());
        let making = async move { runtime.run_sandbox(config, &class).await };
        let made = self.whole(hops::scope(hop.context(), making)).await;
        self.shared.figures.sandboxes.observe(&[&handler], begun.elapsed().as_secs_f64());
        let id = made.map_err(|error| {
            self.shared.figures.failed_sandboxes.increment(&[&handler]);
            error.to_string()
        })?;
        hop.end(self.uid(), controller_uid(&self.pod.metadata).unwrap_or_default(), 0);
        self.shared.owners.lock().insert(id, self.uid().to_owned());
        Ok(())
    }

    /// The pod's user namespace, when it wants one of its own.
    fn users(&self, handler: &str) -> Result<Option<v1::UserNamespace>, String> {
        if self.pod.spec.as_ref().and_then(|spec| spec.host_users) != Some(false) {
            return Ok(None);
        }
        let mut why = "can't set `spec.hostUsers: false`, runtime does not support user namespaces".to_owned();
        if !handler.is_empty() {
            why = format!(
                "can't set `spec.hostUsers: false`, RuntimeClass handler {handler:?} does not support user namespaces"
            );
        }
        match self.shared.facts().handlers.get(handler) {
            Some(abilities) if abilities.user_namespaces => {}
            Some(_) => return Err(why),
            None => return Err(format!("{why}: the handler {handler:?} is not known")),
        }
        self.shared.users.get(self.uid()).map(Some).map_err(|error| format!("create user namespace: {error}"))
    }

    fn sandbox_config(
        &self,
        attempt: u32,
        users: Option<v1::UserNamespace>,
    ) -> Result<(v1::PodSandboxConfig, Vec<String>), cri_config::Error> {
        let driver = self.shared.cgroups.as_ref().map(node::cgroups::Cgroups::driver);
        let parent = driver.map(|driver| self.shared.cgroup(&self.pod).parent_for_runtime(driver)).unwrap_or_default();
        let (config, warnings) = cri_config::sandbox::config(&self.pod, attempt, &parent, &self.shared.facts())?;
        Ok((cri_config::sandbox::with_users(config, users), warnings))
    }

    /// The runtime's name for the pod's runtime class; empty for the default.
    async fn runtime_handler(&self) -> Result<String, String> {
        let class =
            self.pod.spec.as_ref().and_then(|s| s.runtime_class_name.as_deref()).filter(|name| !name.is_empty());
        let Some(class) = class else { return Ok(String::new()) };
        let found: k8s_openapi::api::node::v1::RuntimeClass = self
            .shared
            .client
            .get("", class)
            .await
            .map_err(|e| format!("failed to get RuntimeClass {class:?}: {e}"))?;
        Ok(found.handler)
    }

    /// Starts containers in order; a sidecar or regular one that cannot start does not keep the others from it.
    pub(super) async fn start_all(&mut self, starts: &[Start]) -> Step {
        let attempt = self.state.sandbox().map_or(0, |sandbox| sandbox.attempt);
        let config = async {
            let handler = self.runtime_handler().await?;
            let users = self.users(&handler)?;
            let (config, _) = self.sandbox_config(attempt, users.clone()).map_err(|error| error.to_string())?;
            let abilities = self.shared.facts().handlers.get(&handler).copied().unwrap_or_default();
            Ok::<_, String>((config, Frame { users, abilities }))
        };
        let (config, frame) = match config.await {
            Ok(both) => both,
            Err(error) => {
                tracing::warn!(pod = %spec::long_name(&self.pod), %error, "sandbox configuration not possible");
                return Step::Wait(Some(AGAIN));
            }
        };
        let pod = self.pod.clone();
        let (mut started, mut wait) = (false, None::<Duration>);
        for start in starts {
            let found = spec::members(&pod).find(|m| m.kind == start.kind && m.index == start.index);
            let Some(member) = found else { continue };
            match self.start_one(&member, &config, &frame).await {
                Ok(()) => {
                    self.waiting.remove(&member.container.name);
                    started = true;
                }
                Err(failure) => {
                    self.waiting.insert(member.container.name.clone(), failure.waiting);
                    wait = Some(wait.map_or(failure.again, |sofar| sofar.min(failure.again)));
                    // What follows an init container that did not start has to wait for it.
                    if member.kind == Kind::Init && !member.is_sidecar() {
                        break;
                    }
                }
            }
        }
        if started && wait.is_none() { Step::Again } else { Step::Wait(wait) }
    }

    async fn start_one(
        &mut self,
        member: &Member<'_>,
        sandbox: &v1::PodSandboxConfig,
        frame: &Frame,
    ) -> Result<(), NotStarted> {
        let shared = self.shared.clone();
        let sandbox_id = self
            .state
            .sandbox()
            .map(|s| s.id.clone())
            .ok_or_else(|| not_started("CreateContainerError", "pod sandbox not found"))?;
        let key = attempt_key(member);
        let known = self.waiting.get(&member.container.name).cloned();
        if let (Some(again), Some(waiting)) = (self.refusals.wait(&key, self.now()), known) {
            return Err(NotStarted { waiting, again });
        }
        self.check_restart(member)?;
        let kind = match member.kind {
            Kind::Init => "init_container",
            Kind::Regular => "container",
            Kind::Ephemeral => "ephemeral_container",
        };
        shared.figures.started_containers.increment(&[kind]);
        let started = self.begin(member, sandbox, frame, &sandbox_id).await;
        if let Err(NotStarted { waiting, .. }) = &started {
            shared.figures.failed_containers.increment(&[&waiting.reason, kind]);
            if waiting.reason == "CreateContainerError" {
                self.refusals.note(&key, self.now());
            }
        }
        started
    }

    /// Pulls, makes and starts a container.
    async fn begin(
        &mut self,
        member: &Member<'_>,
        sandbox: &v1::PodSandboxConfig,
        frame: &Frame,
        sandbox_id: &str,
    ) -> Result<(), NotStarted> {
        let pod = self.pod.clone();
        let name = member.container.name.clone();
        let shared = self.shared.clone();
        let event = |kind: EventType, reason: &str, message: &str| {
            shared.container_event(&pod, member.kind, &name, kind, reason, message);
        };
        let image = {
            let hop = hops::stage(Stage::Pull, "ensure").by(hops::label(&name)).of_pod(spec::uid(&pod));
            let secrets = self.pull_secrets();
            let record = |kind: EventType, reason: &str, message: String| event(kind, reason, &message);
            let begun = Instant::now();
            let ensuring = shared.images.ensure(&pod, &member.container, &secrets, sandbox, &record);
            let ensured = hops::scope(hop.context(), ensuring).await;
            self.birth.pulled += begun.elapsed();
            pulled(hop, &ensured).end(spec::uid(&pod), controller_uid(&pod.metadata).unwrap_or_default(), 0);
            ensured.map_err(|Absent { waiting, again }| {
                event(EventType::Warning, "Failed", &format!("Error: {}", waiting.reason));
                NotStarted { waiting, again }
            })?
        };
        let images = self.image_volumes(member, sandbox).await.inspect_err(|failure| {
            event(EventType::Warning, "Failed", &format!("Error: {}", failure.waiting.reason));
        })?;
        let config = self.container_config(member, image.reference, image.user, frame, &images).await.map_err(|e| {
            event(EventType::Warning, "Failed", &format!("Error: {e}"));
            not_started("CreateContainerConfigError", e)
        })?;
        let hop = hops::stage(Stage::CreateContainer, "create").by(hops::label(&name)).of_pod(spec::uid(&pod));
        let (runtime, place, around) = (shared.runtime.clone(), sandbox_id.to_owned(), sandbox.clone());
        let making = async move { runtime.create_container(&place, config, around).await };
        let made = self.whole(hops::scope(hop.context(), making)).await;
        let id = made.map_err(|e| {
            event(EventType::Warning, "Failed", &format!("Error: {}", e.message()));
            not_started("CreateContainerError", e.message())
        })?;
        hop.end(spec::uid(&pod), controller_uid(&pod.metadata).unwrap_or_default(), 0);
        shared.owners.lock().insert(id.clone(), spec::uid(&pod).to_owned());
        self.note_resources(&id, &name);
        event(EventType::Normal, "Created", "Container created");
        let hop = hops::stage(Stage::StartContainer, "start").by(hops::label(&name)).of_pod(spec::uid(&pod));
        let (runtime, container) = (shared.runtime.clone(), id.clone());
        let starting = async move { runtime.start_container(&container).await };
        let started = self.whole(hops::scope(hop.context(), starting)).await;
        started.map_err(|e| {
            event(EventType::Warning, "Failed", &format!("Error: {}", e.message()));
            not_started("RunContainerError", e.message())
        })?;
        hop.end(spec::uid(&pod), controller_uid(&pod.metadata).unwrap_or_default(), 0);
        event(EventType::Normal, "Started", "Container started");
        if let Some(hook) = member.container.lifecycle.as_ref().and_then(|l| l.post_start.as_ref()) {
            let ip = self.ip();
            if let Err(why) = crate::worker::hooks::run(&*shared.runtime, &id, &pod, &member.container, &ip, hook).await
            {
                // The reason may hold what the container said, which is not for everybody who can read events.
                event(EventType::Warning, "FailedPostStartHook", "PostStartHook failed");
                if let Err(error) = self.stopper().one(&id, &name, "FailedPostStartHook", Cause::Other, None).await {
                    tracing::warn!(pod = %spec::long_name(&pod), container = name, %error, "container not killed");
                }
                return Err(not_started("PostStartHookError", why));
            }
        }
        Ok(())
    }

    /// A container that keeps ending waits longer each time.
    pub(super) fn check_restart(&mut self, member: &Member<'_>) -> Result<(), NotStarted> {
        let name = &member.container.name;
        let Some(ended) = self.state.latest(name).filter(|c| c.life == Life::Exited) else { return Ok(()) };
        let (ended_at, now) = (time(ended.finished_at), self.now());
        let key = attempt_key(member);
        if let Some((left, delay)) = self.restarts.wait(&key, ended_at, now) {
            let long_name = spec::long_name(&self.pod);
            let message = format!("Back-off restarting failed container {name} in pod {long_name}");
            self.shared.container_event(&self.pod, member.kind, name, EventType::Warning, "BackOff", &message);
            let waited = format!("back-off {} restarting failed container={name} pod={long_name}", go_seconds(delay));
            let waiting = Waiting { reason: "CrashLoopBackOff".to_owned(), message: waited };
            return Err(NotStarted { waiting, again: left });
        }
        self.restarts.note(&key, ended_at, now);
        Ok(())
    }

    async fn container_config(
        &self,
        member: &Member<'_>,
        image_ref: String,
        image_user: cri_config::security::ImageUser,
        frame: &Frame,
        images: &mounts::Images,
    ) -> Result<v1::ContainerConfig, String> {
        let (facts, none) = (self.shared.facts(), (Paths::new(), cri_config::References::default(), HashSet::new()));
        let (paths, references, relabelled) = self
            .volumes
            .as_ref()
            .map_or((&none.0, &none.1, &none.2), |made| (&made.paths, &made.references, &made.relabelled));
        let ips = self.state.ips(&self.pod, &facts.host_ips);
        let files = |wanted: &FileKeySelector| self.variable_in_file(wanted, paths);
        let env = env::environment(&self.pod, &member.container, ips, &facts, references, &files)
            .map_err(|e| e.to_string())?;
        let root = &self.shared.settings.root;
        let abilities = frame.abilities;
        let around = mounts::Around { root, paths, images, relabelled, env: &env, ips, facts: &facts, abilities };
        let mounts = mounts::of_container(&self.pod, &member.container, &around);
        let target = match member.target {
            Some(name) => {
                let found = self.state.active(name).filter(|c| c.life == Life::Running);
                let found = found.ok_or_else(|| format!("unable to find target container {name}"))?;
                Some(found.id.clone())
            }
            None => None,
        };
        let name = &member.container.name;
        let folder = cri_config::log_folder(&facts, &self.pod).join(name);
        std::fs::create_dir_all(&folder)
            .map_err(|e| format!("create container log directory for container {name} failed: {e}"))?;
        let restarts = match self.state.latest(name) {
            Some(before) => before.restarts + 1,
            // The runtime may have forgotten the earlier ones; their logs have not gone.
            None => next_log(&folder),
        };
        let prepared = container::Prepared {
            env,
            mounts: mounts.map_err(|e| e.to_string())?,
            devices: mounts::devices(&self.pod, &member.container, paths).map_err(|e| e.to_string())?,
            image_ref,
            image_user,
            target,
            restarts,
            users: frame.users.clone(),
        };
        container::config(&self.pod, member, prepared, &facts).map_err(|e| e.to_string())
    }

    /// A variable from a file of one of the pod's volumes, where any container of the pod may have put what it likes: it is read
    /// without leaving the volume, and what is wrong with it is not for everybody who can read events.
    fn variable_in_file(
        &self,
        wanted: &FileKeySelector,
        paths: &Paths,
    ) -> Result<(String, PathBuf), cri_config::Error> {
        let volume = paths.get(&wanted.volume_name).ok_or_else(|| {
            let name = &wanted.volume_name;
            cri_config::Error::Other(format!("cannot find the volume {name:?} referenced by FileKeyRef"))
        })?;
        let read = node::mounts::read_inside(volume, Path::new(&wanted.path), ENV_FILE).map_err(|e| e.to_string());
        let value = read.and_then(|bytes| rules::env_file::value(&String::from_utf8_lossy(&bytes), &wanted.key));
        value.map(|value| (value, volume.join(&wanted.path))).map_err(|error| {
            tracing::warn!(pod = %spec::long_name(&self.pod), error, "file of environment variables refused");
            cri_config::Error::Other("couldn't parse env file".to_owned())
        })
    }

    /// The images that the container mounts as volumes, pulled like any other.
    async fn image_volumes(
        &mut self,
        member: &Member<'_>,
        sandbox: &v1::PodSandboxConfig,
    ) -> Result<mounts::Images, NotStarted> {
        let mut images = mounts::Images::new();
        let pod = self.pod.clone();
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let Some(source) = &volume.image else { continue };
            if !member.container.volume_mounts.iter().flatten().any(|mount| mount.name == volume.name) {
                continue;
            }
            let wanted = Container {
                image: source.reference.clone(),
                image_pull_policy: source.pull_policy.clone(),
                ..Container::default()
            };
            // An image volume is the pod's, whichever of its containers mount it.
            let record = |kind: EventType, reason: &str, message: String| {
                self.shared.event(&pod, kind, reason, message);
            };
            let secrets = self.pull_secrets();
            let ensured = self.shared.images.ensure(&pod, &wanted, &secrets, sandbox, &record).await;
            let present = ensured.map_err(|Absent { waiting, again }| NotStarted { waiting, again })?;
            let image = self.image_volume(&present.reference, source, &volume.name).await;
            let image = image.map_err(|error| not_started("CreateContainerError", error))?;
            images.insert(volume.name.clone(), image);
        }
        Ok(images)
    }

    /// An image for the runtime to mount, or where its files are shown when it does not mount images.
    async fn image_volume(&mut self, image: &str, source: &ImageVolumeSource, name: &str) -> Result<Image, String> {
        let uid = self.uid().to_owned();
        let viewed = self.shared.runtime.view_image(image, &uid, name).await;
        let Some(view) = viewed.map_err(|error| error.message().to_owned())? else {
            return Ok(Image::ByRuntime(v1::ImageSpec {
                image: image.to_owned(),
                user_specified_image: source.reference.clone().unwrap_or_default(),
                ..Default::default()
            }));
        };
        // A later start may get another image, while other containers still have this one.
        let id = image.trim_start_matches("sha256:");
        let target = volumes::images_dir(&self.shared.settings.root, &uid).join(name).join(id);
        let shown = target.clone();
        let work = move || node::mounts::show(&view, &shown).map_err(|error| error.to_string());
        tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())??;
        self.viewed.insert(image.to_owned());
        Ok(Image::At(target))
    }

    fn pull_secrets(&self) -> Vec<Arc<Secret>> {
        let none = Default::default();
        let secrets = self.volumes.as_ref().map_or(&none, |made| &made.references.secrets);
        let wanted = self.pod.spec.iter().flat_map(|s| s.image_pull_secrets.iter().flatten());
        wanted.filter_map(|reference| secrets.get(&reference.name).cloned()).collect()
    }

    /// The pod's addresses, as its status and its downward API show them.
    pub(super) fn ips(&self) -> Vec<String> {
        self.state.ips(&self.pod, &self.shared.facts().host_ips).to_vec()
    }

    /// The one that its probes and hooks are sent to.
    pub(super) fn ip(&self) -> String {
        self.state.ip(&self.pod, &self.shared.facts().host_ips).to_owned()
    }
}

/// The number after the highest of the logs `<number>.log` in a folder.
fn next_log(folder: &std::path::Path) -> u32 {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let numbers = names.filter_map(|e| e.file_name().to_str()?.split('.').next()?.parse::<u32>().ok());
    let counted: BTreeMap<u32, ()> = numbers.map(|n| (n, ())).collect();
    counted.last_key_value().map_or(0, |(last, ())| last + 1)
}

/// Whole seconds as Go prints them: `10s`, `1m20s`, `5m0s`.
fn go_seconds(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_printed_as_users_know_them() {
        assert_eq!([10, 80, 300].map(|s| go_seconds(Duration::from_secs(s))), ["10s", "1m20s", "5m0s"]);
    }

    #[test]
    fn logs_of_forgotten_containers_are_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(next_log(dir.path()), 0);
        for name in ["0.log", "3.log", "3.log.20260101", "other"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(next_log(dir.path()), 4);
    }
}
