//! The channels of exec and attach. A message's first byte is its channel; over SPDY each channel is a stream with a type.
//!
//! 0 to 2 are the standard streams, 3 the outcome, 4 the terminal's size, and 255 says that the channel named by its second byte
//! ends. Without that last one, which is what version 5 of the protocol is about, a command could never see the end of its input.

pub const STDIN: u8 = 0;
pub const STDOUT: u8 = 1;
pub const STDERR: u8 = 2;
pub const ERROR: u8 = 3;
pub const RESIZE: u8 = 4;
pub const END_OF: u8 = 255;

/// The protocol in which an input can end.
pub const WITH_END_OF_INPUT: &str = "v5.channel.k8s.io";
/// The one before it, as it is spoken over SPDY, where streams end by themselves.
pub const OVER_SPDY: &str = "v4.channel.k8s.io";
/// Where SPDY's handshake names protocols.
pub const VERSION_HEADER: http::HeaderName = http::HeaderName::from_static("x-stream-protocol-version");

/// Which streams a conversation has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    /// A terminal, whose size may change.
    pub tty: bool,
}

impl Streams {
    /// Channel and type of each, the outcome's first: runtimes wait for all of them.
    pub fn list(self) -> Vec<(u8, &'static str)> {
        let all = [
            (ERROR, "error", true),
            (STDIN, "stdin", self.stdin),
            (STDOUT, "stdout", self.stdout),
            (STDERR, "stderr", self.stderr),
            (RESIZE, "resize", self.tty),
        ];
        all.into_iter().filter(|(_, _, wanted)| *wanted).map(|(channel, kind, _)| (channel, kind)).collect()
    }
}
