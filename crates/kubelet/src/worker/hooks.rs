//! Lifecycle hooks: what a container wants done right after its start and right before its end.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};
use node::cri::Runtime;

use crate::pod::spec;
use crate::probes::http_get::{self, Target};

/// How long a container may take to answer a hook by HTTP.
const HTTP: Duration = Duration::from_secs(30);

/// Runs a hook to its end. The error is for the container's status.
pub async fn run(
    runtime: &dyn Runtime,
    id: &str,
    pod: &Pod,
    container: &Container,
    ip: &str,
    hook: &LifecycleHandler,
) -> Result<(), String> {
    let whom = format!("for Container {:?} in Pod {:?} failed - error:", container.name, spec::long_name(pod));
    if let Some(action) = &hook.exec {
        let command = action.command.clone().unwrap_or_default();
        return match runtime.exec_sync(id, &command, Duration::ZERO).await {
            Ok(response) if response.exit_code == 0 => Ok(()),
            Ok(response) => {
                let mut output = response.stdout;
                output.extend_from_slice(&response.stderr);
                Err(format!(
                    "Exec lifecycle hook ([{}]) {whom} command '{}' exited with {}: {}, message: {:?}",
                    command.join(" "),
                    command.join(" "),
                    response.exit_code,
                    String::from_utf8_lossy(&output),
                    String::from_utf8_lossy(&output)
                ))
            }
            Err(e) => Err(format!("Exec lifecycle hook ([{}]) {whom} {e}, message: \"\"", command.join(" "))),
        };
    }
    if let Some(action) = &hook.http_get {
        let path = action.path.as_deref().unwrap_or_default();
        let headers: Vec<(String, String)> =
            action.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect();
        let target = Target::new(action, container, ip);
        let answer = match target {
            Ok(target) => http_get::get(&target, &headers, "kube-lifecycle/1.37", HTTP).await,
            Err(why) => Err(why),
        };
        // Any answer will do: the hook was delivered.
        return answer.map(drop).map_err(|why| format!("HTTP lifecycle hook ({path}) {whom} {why}"));
    }
    if let Some(action) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(action.seconds).unwrap_or(0))).await;
        return Ok(());
    }
    Err("Cannot run handler: invalid handler".to_owned())
}
