//! Flags of `trainyard operator`: ours, and those of upstream's controller that it understands.

use api::config::MpiProfile;
use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// Upstream's names for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Encoder {
    Json,
    Console,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verbosity {
    Error,
    #[default]
    Info,
    /// What we decide and do.
    Debug,
    /// What the libraries below us do, too.
    Everything,
}

impl OperatorArgs {
    /// The form of log lines that all flags together ask for.
    pub fn log_format(&self) -> LogFormat {
        match self.zap_encoder {
            Some(Encoder::Json) => LogFormat::Json,
            Some(Encoder::Console) => LogFormat::Text,
            None if self.zap_devel == Some(true) => LogFormat::Text,
            None => self.log_format,
        }
    }

    /// How much they ask to be logged.
    pub fn verbosity(&self) -> Verbosity {
        let devel = if self.zap_devel == Some(true) { Verbosity::Debug } else { Verbosity::default() };
        self.zap_log_level.unwrap_or(devel)
    }
}

/// controller-runtime's levels. Upstream's manifests ask for 2, which there shows what each controller is called.
fn verbosity(text: &str) -> Result<Verbosity, String> {
    match text.parse::<u8>() {
        Ok(0..=2) => Ok(Verbosity::Info),
        Ok(3..=5) => Ok(Verbosity::Debug),
        Ok(_) => Ok(Verbosity::Everything),
        Err(_) => match text.to_ascii_lowercase().as_str() {
            "debug" => Ok(Verbosity::Debug),
            "info" => Ok(Verbosity::Info),
            "error" | "panic" => Ok(Verbosity::Error),
            _ => Err(format!("{text:?} is not debug, info, error or panic, nor a number from 0 to 255")),
        },
    }
}

/// `--namespace` (a flag of all commands) says where the operator's own Secret, Lease and Service are.
#[derive(Args, Debug)]
pub struct OperatorArgs {
    /// Configuration file (config.trainer.kubeflow.org/v1alpha1, kind Configuration)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the API server reaches the webhooks when the operator runs outside the cluster: https://HOST:PORT
    #[arg(long, value_name = "URL", value_parser = url)]
    pub webhook_url: Option<String>,
    /// Where webhooks listen [default: the configuration's webhook.host and port, or the port of --webhook-url]
    #[arg(long, value_name = "ADDR:PORT")]
    pub webhook_listen: Option<SocketAddr>,
    /// Where probes are answered, 0 for nowhere [default: the configuration's health.healthProbeBindAddress]
    #[arg(long, value_name = "ADDR:PORT")]
    pub health_listen: Option<String>,
    /// Where metrics are served, 0 for nowhere [default: the configuration's metrics.bindAddress]
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics_listen: Option<String>,
    /// The only namespace whose TrainJobs to work on [default: all]
    #[arg(long, value_name = "NAME")]
    pub watch_namespace: Option<String>,
    /// Which controllers to run: trainjob, trainingruntime, clustertrainingruntime, optimizationjob, mpijob, or none
    #[arg(long, default_value = "trainjob,trainingruntime,clustertrainingruntime", value_name = "NAME,…")]
    pub controllers: String,
    /// Elect a leader among several replicas [default: the configuration's leaderElection]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub leader_elect: Option<bool>,
    /// Feature gates, over those of the configuration: NAME=true|false
    #[arg(long, value_name = "NAME=BOOL,…", value_delimiter = ',', value_parser = gate)]
    pub feature_gates: Vec<(String, bool)>,
    /// Built-in runtimes to install, by name, or all; what others changed in them is left alone [default: none]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub install_runtimes: Vec<String>,
    /// The image for initializers of the runtimes that are installed, made by cargo xtask image --initializer [default: upstream's]
    #[arg(long, value_name = "IMAGE")]
    pub initializer_image: Option<String>,
    /// What MPIJobs' pods have beyond mpi-operator's: nothing, or what OpenShift AI asks for [default: the configuration's
    /// mpi.profile, or upstream]
    #[arg(long, value_name = "PROFILE", value_parser = crate::values::mpi_profile())]
    pub mpi_profile: Option<MpiProfile>,
    /// How log lines look
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// Upstream's flag for the form of log lines; goes before --log-format
    #[arg(long, value_enum, value_name = "FORM", help_heading = "Upstream's logging flags")]
    pub zap_encoder: Option<Encoder>,
    /// How much is logged: debug, info, error, panic, or a number (1 and 2 as info, up to 5 as debug, above it everything)
    #[arg(long, value_parser = verbosity, value_name = "LEVEL", help_heading = "Upstream's logging flags")]
    pub zap_log_level: Option<Verbosity>,
    /// Text and debug where the two flags above say nothing
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        help_heading = "Upstream's logging flags")]
    pub zap_devel: Option<bool>,
    /// Without effect: there are no stack traces
    #[arg(long, value_parser = ["info", "error", "panic"], help_heading = "Upstream's logging flags")]
    pub zap_stacktrace_level: Option<String>,
    /// Without effect: times are RFC 3339 in UTC
    #[arg(long, value_parser = ["epoch", "millis", "nano", "iso8601", "rfc3339", "rfc3339nano"],
        help_heading = "Upstream's logging flags")]
    pub zap_time_encoding: Option<String>,
    /// Between two looks at the webhooks' certificate, in seconds (for tests)
    #[arg(long, hide = true, default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    pub certificate_period: Duration,
}

fn url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").ok_or("webhooks are reached over TLS: https://HOST:PORT")?;
    let rest = rest.trim_end_matches('/');
    if rest.is_empty() || rest.contains(['/', '?', '#', '@']) {
        return Err("must be https://HOST:PORT, nothing more".to_owned());
    }
    Ok(format!("https://{rest}"))
}

fn gate(text: &str) -> Result<(String, bool), String> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=true or NAME=false")?;
    let value = value.parse().map_err(|_| format!("{value:?} is neither true nor false"))?;
    Ok((name.trim().to_owned(), value))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: OperatorArgs,
    }

    fn read(flags: &[&str]) -> Result<OperatorArgs, clap::Error> {
        let words = ["operator"].iter().chain(flags);
        <Line as clap::Parser>::try_parse_from(words).map(|line| line.args)
    }

    #[test]
    fn upstreams_logging_flags_are_understood() {
        let logs = |flags: &[&str]| read(flags).map(|args| (args.log_format(), args.verbosity())).unwrap();
        let shipped = ["--zap-log-level=2", "--zap-time-encoding=rfc3339nano", "--zap-stacktrace-level=error"];
        assert_eq!(logs(&shipped), (LogFormat::Text, Verbosity::Info));
        assert_eq!(logs(&["--zap-encoder=json", "--zap-log-level=debug"]), (LogFormat::Json, Verbosity::Debug));
        assert_eq!(logs(&["--log-format=json", "--zap-devel"]), (LogFormat::Text, Verbosity::Debug));
        assert_eq!(logs(&["--log-format=json", "--zap-devel=false"]), (LogFormat::Json, Verbosity::Info));
        assert_eq!(logs(&["--zap-devel", "--zap-log-level=9"]), (LogFormat::Text, Verbosity::Everything));
        for wrong in ["--zap-log-level=loud", "--zap-log-level=-1", "--zap-encoder=xml", "--zap-time-encoding=x"] {
            assert!(read(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_are_checked() {
        assert_eq!(url("https://127.0.0.1:9443/"), Ok("https://127.0.0.1:9443".to_owned()));
        for wrong in ["http://x:1", "https://", "https://x/y", "https://a@b"] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
        assert_eq!(gate("TrainJobStatus=true"), Ok(("TrainJobStatus".to_owned(), true)));
        assert!(gate("TrainJobStatus").is_err() && gate("X=1").is_err());
    }
}
