//! `trainyard initialize`: variables and flags to `fetch`, and what it says to the log.

use api::foreign::{visible, visible_json, visible_line};
use fetch::{Kind, Mode, Report, Said, Settings, Variables};
use grammar::{InitializeArgs, InitializeFormat, InitializeKind};
use node::programs::StandIn;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// Where the target is handed over to a program that is started without flags: on a laptop mounts may be paths.
const TARGET: &str = "TRAINYARD_INITIALIZE_INTO";
/// Which of the two a container is, where neither its arguments nor its pod's name say it.
pub const KIND: &str = "TRAINYARD_INITIALIZE";

/// Threads that may wait for the disk, or for a name.
pub const WRITERS: usize = 16;

/// The images of initializers, for a machine on which images are ignored: this binary, whose path is `program`, does what they do.
pub fn stand_ins(program: &str) -> Vec<StandIn> {
    let of = |word: &str| StandIn {
        image: format!("{word}-initializer"),
        module: format!("pkg.initializers.{word}"),
        argv: [program, "initialize", word].map(str::to_owned).to_vec(),
        folder: format!("/workspace/{word}"),
        variable: TARGET.to_owned(),
    };
    KINDS.map(of).to_vec()
}

const KINDS: [&str; 2] = ["dataset", "model"];

/// The names under which the image of initializers starts this binary, and what each stands in for: upstream's image has them, and
/// runtimes and the SDK call them.
const NAMES: [&str; 5] = ["initializer", "python", "python3", "bash", "sh"];

/// The words of the command that this process stands for, if it was started under one of [`NAMES`]. `pod` is the host's name, by
/// which a pod of a step tells the step: `JOB-dataset-initializer-0-0`.
pub fn called(words: &[OsString], variable: Option<&str>, pod: &str) -> Option<Result<Vec<OsString>, String>> {
    let name = Path::new(words.first()?).file_name()?.to_str()?;
    let rest: Vec<&str> = words[1..].iter().filter_map(|word| word.to_str()).collect();
    let command = |kind: &str, more: &[&str]| {
        let all = ["trainyard", "initialize", kind].into_iter().chain(more.iter().copied());
        Some(Ok(all.map(OsString::from).collect()))
    };
    let module = |words: &[&str]| match words {
        ["python" | "python3", "-m", module] => {
            KINDS.into_iter().find(|kind| *module == format!("pkg.initializers.{kind}"))
        }
        _ => None,
    };
    match (name, rest.as_slice()) {
        ("initializer", [kind, more @ ..]) if KINDS.contains(kind) => command(kind, more),
        ("initializer", more) => {
            let step = |kind: &&str| pod.contains(&format!("-{kind}-initializer-"));
            let told = KINDS.into_iter().find(|kind| variable == Some(kind));
            let kind = told.or_else(|| KINDS.into_iter().find(step));
            match kind {
                Some(kind) => command(kind, more),
                None => Some(Err(format!(
                    "this image fills folders with data sets and models: say which by the argument dataset or model, or by \
                     {KIND}; this pod's name ({pod}) does not tell"
                ))),
            }
        }
        ("python" | "python3", words) => match module(&[&["python"], words].concat()) {
            Some(kind) => command(kind, &[]),
            None => Some(Err(lacking(name))),
        },
        ("bash" | "sh", ["-c", line]) => match module(&line.split_whitespace().collect::<Vec<_>>()) {
            Some(kind) => command(kind, &[]),
            None => Some(Err(lacking(name))),
        },
        (name, _) if NAMES.contains(&name) => Some(Err(lacking(name))),
        _ => None,
    }
}

fn lacking(name: &str) -> String {
    format!(
        "there is no {name} in this image, but a stand-in that runs python -m pkg.initializers.dataset (or .model) and nothing else; \
         use another image for another command"
    )
}

/// Fills a folder; returns the process's exit code.
pub async fn initialize(args: &InitializeArgs) -> u8 {
    let (kind, word) = match args.kind {
        InitializeKind::Dataset => (Kind::Dataset, "dataset"),
        InitializeKind::Model => (Kind::Model, "model"),
    };
    let variables = Variables::new(
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    );
    let target = args.into.clone().or_else(|| variables.get(TARGET).map(PathBuf::from));
    let target = target.unwrap_or_else(|| Path::new("/workspace").join(word));
    // names and refusals are the source's
    let say = Arc::new(move |said| match said {
        Said::Info(text) => node::say!("{word}-initializer: {}", visible(&text)),
        Said::Warning(text) => node::say!("{word}-initializer: warning: {}", visible(&text)),
    });
    let mode = match (args.dry_run, args.verify) {
        (true, _) => Mode::DryRun,
        (_, true) => Mode::Verify,
        _ => Mode::Fetch,
    };
    let result = match Settings::read(kind, &args.uri, variables) {
        Ok(mut settings) => {
            settings.strict |= args.strict;
            fetch::run(settings, target, mode, say, ended()).await
        }
        Err(error) => Err(error),
    };
    match result {
        Ok(report) => {
            print(&report, mode, args.output);
            0
        }
        Err(error) => {
            node::say!("{word}-initializer: {}", visible(&error.to_string()));
            error.exit_code()
        }
    }
}

/// SIGTERM or SIGINT.
async fn ended() {
    match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(mut terminated), Ok(mut interrupted)) => {
            tokio::select! { _ = terminated.recv() => {}, _ = interrupted.recv() => {} }
        }
        _ => std::future::pending().await,
    }
}

fn print(report: &Report, mode: Mode, format: InitializeFormat) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    // a reader that closed stdout does not want it
    let _ = match format {
        InitializeFormat::Json => {
            serde_json::to_string(report).map_err(Into::into).and_then(|text| writeln!(out, "{}", visible_json(&text)))
        }
        InitializeFormat::Text if mode == Mode::Fetch => Ok(()),
        InitializeFormat::Text => report.files.iter().try_for_each(|file| {
            let size = file.size.map_or_else(|| "?".to_owned(), |size| size.to_string());
            writeln!(out, "{:<9} {size:>14}  {}", file.state, visible_line(&file.path))
        }),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called_by(line: &str, variable: Option<&str>, pod: &str) -> Option<Result<String, String>> {
        let words: Vec<OsString> = line.split('|').map(OsString::from).collect();
        let joined =
            |words: Vec<OsString>| words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        called(&words, variable, pod).map(|found| found.map(joined))
    }

    #[test]
    fn the_image_answers_to_upstreams_commands() {
        for (line, found) in [
            ("/bin/python|-m|pkg.initializers.dataset", "trainyard initialize dataset"),
            ("python3|-m|pkg.initializers.model", "trainyard initialize model"),
            ("bash|-c|python -m pkg.initializers.dataset", "trainyard initialize dataset"),
            ("/bin/sh|-c| python3  -m pkg.initializers.model\n", "trainyard initialize model"),
            ("/bin/initializer|dataset|--verify", "trainyard initialize dataset --verify"),
        ] {
            assert_eq!(called_by(line, None, "h"), Some(Ok(found.to_owned())), "{line}");
        }
        for line in ["/trainyard", "/usr/bin/trainyard|initialize|dataset", "x/trainyard-warm"] {
            assert_eq!(called_by(line, Some("model"), "j-dataset-initializer-0-0"), None, "{line}");
        }
        for line in
            ["bash", "bash|-c|rm -rf /", "python|train.py", "sh|-c|python -m pkg.initializers.dataset|x", "initializer"]
        {
            assert!(matches!(called_by(line, None, "h"), Some(Err(_))), "{line}");
        }
    }

    #[test]
    fn a_pod_tells_which_initializer_it_is() {
        let dataset = Some(Ok("trainyard initialize dataset".to_owned()));
        assert_eq!(called_by("initializer", None, "job-dataset-initializer-0-0-x7k"), dataset);
        assert_eq!(called_by("initializer", Some("dataset"), "job-model-initializer-0-0"), dataset);
        let verify = Some(Ok("trainyard initialize model --verify".to_owned()));
        assert_eq!(called_by("initializer|--verify", Some(""), "job-model-initializer-0-0"), verify);
    }
}
