//! Connections to sockets of plug-ins, and calls with a time limit over them.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::Error;

/// A connection to a socket, made with the first call over it.
pub fn channel(socket: &Path) -> Result<Channel, Error> {
    let refused = |why: String| Error::new("connect", Status::unavailable(why));
    let found = socket.symlink_metadata().map_err(|e| refused(format!("{}: {e}", socket.display())))?;
    // Whoever could put a link here could have any other program of this machine believe that it is asked by a kubelet.
    if !found.file_type().is_socket() {
        return Err(refused(format!("{} is not a socket", socket.display())));
    }
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).map_err(|e| refused(e.to_string()))?;
    Ok(endpoint.connect_lazy())
}

/// The answer to a call, or an error with the call's name. The limit is kept on our side too: a driver that hangs does not
/// keep the one in the header.
pub(crate) async fn within<T>(
    call: &'static str,
    limit: Duration,
    answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Error> {
    match tokio::time::timeout(limit, answer).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(Error::new(call, status)),
        Err(_) => Err(Error::new(call, Status::deadline_exceeded("context deadline exceeded"))),
    }
}
