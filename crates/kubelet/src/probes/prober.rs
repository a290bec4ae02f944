//! Asking a container once: by a command, by HTTP, by TCP or by gRPC.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{Container, Probe};
use node::cri::Runtime;
use threads::patience::within;

use crate::probes::http_get::{self, Target};

/// What of a command's output is kept.
const OUTPUT: usize = 10 << 10;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// It answered well enough, but something should be known.
    Warning(String),
    Failure(String),
    /// It could not be asked at all; says nothing about the container.
    Error(String),
}

pub async fn probe(runtime: &dyn Runtime, id: &str, container: &Container, ip: &str, probe: &Probe) -> Outcome {
    let seconds = probe.timeout_seconds.and_then(|s| u64::try_from(s).ok()).filter(|&s| s > 0).unwrap_or(1);
    let limit = Duration::from_secs(seconds);
    if let Some(action) = &probe.exec {
        return exec(runtime, id, action.command.as_deref().unwrap_or_default(), limit).await;
    }
    if let Some(action) = &probe.http_get {
        let target = match Target::new(action, container, ip) {
            Ok(target) => target,
            Err(why) => return Outcome::Error(why),
        };
        let headers: Vec<(String, String)> =
            action.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect();
        return match http_get::get(&target, &headers, "kube-probe/1.37", limit).await {
            Ok(answer) => match answer.status {
                200..=299 => Outcome::Success,
                300..=399 => Outcome::Warning(format!("Probe terminated redirects, Response body: {}", answer.body)),
                code => Outcome::Failure(format!("HTTP probe failed with statuscode: {code}")),
            },
            Err(why) => Outcome::Failure(why),
        };
    }
    if let Some(action) = &probe.tcp_socket {
        let port = match http_get::port(&action.port, container) {
            Ok(port) => port,
            Err(why) => return Outcome::Error(why),
        };
        let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(ip);
        return match within(limit, http_get::connect(host, port, None)).await {
            Some(Ok(_)) => Outcome::Success,
            Some(Err(why)) => Outcome::Failure(why),
            None => Outcome::Failure(http_get::dial_error(host, port, &std::io::ErrorKind::TimedOut.into())),
        };
    }
    if let Some(action) = &probe.grpc {
        let Ok(port) = u16::try_from(action.port) else { return Outcome::Error("invalid port number".into()) };
        let service = action.service.as_deref().unwrap_or_default();
        return match within(limit, health(ip, port, service)).await {
            Some(Ok(())) => Outcome::Success,
            Some(Err(why)) => Outcome::Failure(why),
            None => Outcome::Failure(format!("timeout: health rpc did not complete within {seconds}s")),
        };
    }
    Outcome::Error("missing probe handler".to_owned())
}

async fn exec(runtime: &dyn Runtime, id: &str, command: &[String], limit: Duration) -> Outcome {
    match runtime.exec_sync(id, command, limit).await {
        Ok(response) if response.exit_code == 0 => Outcome::Success,
        Ok(response) => {
            let mut output = response.stdout;
            output.extend_from_slice(&response.stderr);
            output.truncate(OUTPUT);
            Outcome::Failure(String::from_utf8_lossy(&output).into_owned())
        }
        Err(e) if e.is_deadline() => {
            let shown = command.join(" ");
            Outcome::Failure(format!("command timed out: {shown:?} timed out after {}s", limit.as_secs()))
        }
        Err(e) => Outcome::Error(e.to_string()),
    }
}

/// `grpc.health.v1.Health/Check`, of which only one field each way matters.
async fn health(host: &str, port: u16, service: &str) -> Result<(), String> {
    let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let stream = http_get::connect(host, port, None)
        .await
        .map_err(|e| format!("error: failed to connect service at {address:?}: {e}"))?;
    let failed = |e: &dyn std::fmt::Display| format!("error: health rpc probe failed: {e}");
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|e| failed(&e))?;
    let driver = tokio::spawn(connection);
    let request = http::Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/1.37")
        .body(Full::new(request_frame(service)))
        .map_err(|e| failed(&e))?;
    let response = sender.send_request(request).await.map_err(|e| failed(&e))?;
    let headers = response.headers().clone();
    let collected = response.into_body().collect().await.map_err(|e| failed(&e))?;
    driver.abort();
    let code = collected.trailers().and_then(|t| t.get("grpc-status")).or_else(|| headers.get("grpc-status"));
    let message = collected.trailers().and_then(|t| t.get("grpc-message")).or_else(|| headers.get("grpc-message"));
    let message = message.and_then(|m| m.to_str().ok()).unwrap_or_default();
    match code.and_then(|code| code.to_str().ok()).unwrap_or("2") {
        "0" => {}
        "12" => {
            return Err(format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
            ));
        }
        code => return Err(failed(&format!("rpc error: code = {code} desc = {message}"))),
    }
    match serving_status(&collected.to_bytes()) {
        1 => Ok(()),
        other => {
            let name =
                ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"].get(other as usize).unwrap_or(&"UNKNOWN");
            Err(format!("service unhealthy (responded with {name:?})"))
        }
    }
}

/// A gRPC frame that holds `HealthCheckRequest { service = 1 }`.
fn request_frame(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.put_u8(length as u8 | 0x80);
            length >>= 7;
        }
        message.put_u8(length as u8);
        message.put_slice(service.as_bytes());
    }
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(&message);
    frame.freeze()
}

/// `HealthCheckResponse.status`, field 1, a small number.
fn serving_status(frame: &[u8]) -> u8 {
    match frame.get(5..) {
        Some([0x08, status, ..]) => *status,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_messages_are_framed_as_grpc_wants_them() {
        assert_eq!(&request_frame("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&request_frame("ab")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        assert_eq!(serving_status(&[0, 0, 0, 0, 2, 8, 2]), 2);
        assert_eq!(serving_status(&[0, 0, 0, 0, 0]), 0);
    }
}
