//! A network namespace that one thread is in, and that goes with it: to try things out in.

use std::io;
use std::thread::JoinHandle;

/// Does something on a thread that has a network to itself: a loopback link that is down, and no rules.
pub fn alone<T: Send + 'static>(
    what: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<JoinHandle<io::Result<T>>> {
    std::thread::Builder::new().name("alone".to_owned()).spawn(|| {
        // SAFETY: it takes flags, and changes nothing but the namespace of this thread, which nobody else has seen yet.
        #[allow(unsafe_code)]
        let moved = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        if moved != 0 {
            return Err(io::Error::last_os_error());
        }
        what()
    })
}
