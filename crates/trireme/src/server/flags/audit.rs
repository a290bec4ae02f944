//! Options of the audit log.

use std::path::PathBuf;
use std::time::Duration;

use apiserver::audit::{Mode, Settings, log, policy::Policy, webhook};
use clap::{Args, ValueEnum};

use super::super::Error;
use super::{duration, wrong};

/// What is written about requests.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Audit")]
pub struct Options {
    /// An audit.k8s.io/v1 Policy: what is written about which requests. Nothing is without it.
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,
    /// Where events are written, a JSON object per line; - is standard output.
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub audit_log_path: Option<PathBuf>,
    /// How requests wait for their lines: not at all, before their answer, or also before they do anything.
    #[arg(long, value_enum, default_value_t = Waiting::Blocking, requires = "audit_log_path")]
    pub audit_log_mode: Waiting,
    /// The form of the lines; there is one.
    #[arg(long, value_name = "FORMAT", default_value = "json", value_parser = ["json"], requires = "audit_log_path")]
    pub audit_log_format: String,
    /// Days that old files are kept; 0 is for ever.
    #[arg(long, value_name = "DAYS", default_value_t = 0, requires = "audit_log_path")]
    pub audit_log_maxage: u32,
    /// How many old files are kept; 0 is all.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "audit_log_path")]
    pub audit_log_maxbackup: usize,
    /// Megabytes of a file before a new one begins; 0 is 100.
    #[arg(long, value_name = "MEGABYTES", default_value_t = 0, requires = "audit_log_path")]
    pub audit_log_maxsize: u64,
    /// Pack old files with gzip.
    #[arg(long, requires = "audit_log_path")]
    pub audit_log_compress: bool,
    /// Lines that may wait to be written; those beyond are lost.
    #[arg(long, value_name = "NUMBER", default_value_t = log::QUEUE, requires = "audit_log_path")]
    pub audit_log_batch_buffer_size: usize,
    /// Leave what was sent and answered out of events that are too large.
    #[arg(long, requires = "audit_log_path")]
    pub audit_log_truncate_enabled: bool,
    /// What is too large for that, in bytes; an event that is too large even then is not written.
    #[arg(long, value_name = "BYTES", default_value_t = 102_400, requires = "audit_log_truncate_enabled")]
    pub audit_log_truncate_max_event_size: usize,
    /// A kubeconfig that says where events are sent.
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// How requests wait for the webhook.
    #[arg(long, value_enum, default_value_t = Waiting::Batch, requires = "audit_webhook_config_file")]
    pub audit_webhook_mode: Waiting,
    /// Events that may wait to be sent; those beyond are lost.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, requires = "audit_webhook_config_file")]
    pub audit_webhook_batch_buffer_size: usize,
    /// Events that are sent at once.
    #[arg(long, value_name = "NUMBER", default_value_t = 400, requires = "audit_webhook_config_file")]
    pub audit_webhook_batch_max_size: usize,
    /// How long events wait until others can go with them.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration,
        requires = "audit_webhook_config_file")]
    pub audit_webhook_batch_max_wait: Duration,
    /// The first pause after a call that failed.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration,
        requires = "audit_webhook_config_file")]
    pub audit_webhook_initial_backoff: Duration,
    /// Send no more batches than the next two say.
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set, default_value_t = true, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", requires = "audit_webhook_config_file")]
    pub audit_webhook_batch_throttle_enable: bool,
    /// Batches per second, in the long run.
    #[arg(long, value_name = "NUMBER", default_value_t = 10.0, requires = "audit_webhook_config_file")]
    pub audit_webhook_batch_throttle_qps: f64,
    /// Batches that may follow each other at once after a rest.
    #[arg(long, value_name = "NUMBER", default_value_t = 15, requires = "audit_webhook_config_file")]
    pub audit_webhook_batch_throttle_burst: u32,
    /// Leave what was sent and answered out of events that are too large, and divide batches that are.
    #[arg(long, requires = "audit_webhook_config_file")]
    pub audit_webhook_truncate_enabled: bool,
    /// What is too large for an event, in bytes; one that is too large even then is not sent.
    #[arg(long, value_name = "BYTES", default_value_t = 102_400, requires = "audit_webhook_truncate_enabled")]
    pub audit_webhook_truncate_max_event_size: usize,
    /// What is too large for a batch, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 10 << 20, requires = "audit_webhook_truncate_enabled")]
    pub audit_webhook_truncate_max_batch_size: usize,
}

/// How requests wait for their audit events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Waiting {
    /// Not at all.
    Batch,
    /// Before they are answered.
    Blocking,
    /// Before they are answered, and before they do anything.
    BlockingStrict,
}

impl Waiting {
    fn mode(self) -> Mode {
        match self {
            Self::Batch => Mode::Batch,
            Self::Blocking => Mode::Blocking,
            Self::BlockingStrict => Mode::BlockingStrict,
        }
    }
}

impl Options {
    fn throttle(&self) -> Option<webhook::Throttle> {
        let qps = self.audit_webhook_batch_throttle_qps;
        let every = Duration::try_from_secs_f64(qps.recip()).ok()?;
        let burst = self.audit_webhook_batch_throttle_burst;
        self.audit_webhook_batch_throttle_enable.then_some(webhook::Throttle { every, burst })
    }

    /// Checks the options and reads the files that they name.
    pub fn read(&self) -> Result<Option<Settings>, Error> {
        let Some(path) = &self.audit_policy_file else { return Ok(None) };
        let policy = Policy::load(path).map_err(|error| wrong("audit-policy-file", error))?;
        let log = self.audit_log_path.clone().map(|path| log::Settings {
            path,
            mode: self.audit_log_mode.mode(),
            max_age: self.audit_log_maxage,
            max_backup: self.audit_log_maxbackup,
            max_size: self.audit_log_maxsize,
            compress: self.audit_log_compress,
            buffer: self.audit_log_batch_buffer_size,
            truncate: self.audit_log_truncate_enabled.then_some(self.audit_log_truncate_max_event_size),
        });
        let webhook = self.audit_webhook_config_file.clone().map(|kubeconfig| webhook::Settings {
            mode: self.audit_webhook_mode.mode(),
            buffer: self.audit_webhook_batch_buffer_size,
            batch: self.audit_webhook_batch_max_size,
            wait: self.audit_webhook_batch_max_wait,
            backoff: self.audit_webhook_initial_backoff,
            throttle: self.throttle(),
            truncate: self.audit_webhook_truncate_enabled.then_some(webhook::Limits {
                event: self.audit_webhook_truncate_max_event_size,
                batch: self.audit_webhook_truncate_max_batch_size,
            }),
            ..webhook::Settings::at(kubeconfig)
        });
        if let Some(webhook) = &webhook {
            let checked = apiserver::gates::outbound::Remote::from_kubeconfig(&webhook.kubeconfig);
            checked.map_err(|error| wrong("audit-webhook-config-file", error))?;
        }
        if log.is_none() && webhook.is_none() {
            let why = "give --audit-log-path or --audit-webhook-config-file too: nothing would be written otherwise";
            return Err(wrong("audit-policy-file", why));
        }
        Ok(Some(Settings { policy, log, webhook }))
    }
}
