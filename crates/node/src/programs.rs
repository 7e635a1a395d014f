//! What every container finds: the environment it begins with, and a few programs around its PATH.
//!
//! Last on the PATH, for machines that lack them: `python` and `pip` for those that have `python3` only, and a `torchrun`
//! and an `mpirun` that say what to install. First on the PATH: `trainyard-warm COMMAND`, which starts a command warm if it
//! can (`shim::warm`), `trainyard`, and `ssh`. MPI starts its processes through `ssh`, to a server
//! in every pod; on one machine those servers would fight for one port (and need an installed, configured sshd). So `ssh`
//! to another pod of the same headless service runs the command there through that pod's shim, `ssh` to anywhere else is
//! the machine's own, and a pod whose program is `sshd` just waits to be stopped. A
//! pod that is bound and not up yet is waited for (`shim::reach`).

use api::mpi::names::CONFIG_PATH;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

/// Variables of the agent's own environment that containers get: what a program of this user on this machine needs to
/// find Python, libraries, certificates, proxies, package indices and caches.
const INHERITED: [&str; 28] = [
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "PYTHONHOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "CUDA_HOME",
    "CUDA_PATH",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
];
const INHERITED_PREFIXES: [&str; 8] = ["LC_", "PIP_", "UV_", "CONDA_", "PYENV_", "HF_", "NVIDIA_", "MAMBA_"];

/// Hosts that [`missing_workers`] names; the rest are counted.
const NAMED: usize = 5;

/// What Open MPI must be told about pods: it takes each for a machine of its own, but they may share one. So no process is
/// bound to a core (every pod's first would be bound to the same one), and a rank that waits lets others have the core.
const OPEN_MPI: [(&str, &str); 2] =
    [("OMPI_MCA_hwloc_base_binding_policy", "none"), ("OMPI_MCA_mpi_yield_when_idle", "1")];

/// The same for Intel MPI.
const INTEL_MPI: [(&str, &str); 2] = [("I_MPI_PIN", "0"), ("I_MPI_THREAD_YIELD", "2")];

/// What Open MPI must be told where no other machine takes part: that pods talk over the loopback interface, the only one that is
/// always there. Open MPI leaves it out by itself, and with it alone reaches no other machine.
const OPEN_MPI_ALONE: [(&str, &str); 2] =
    [("OMPI_MCA_btl_tcp_if_include", "lo"), ("OMPI_MCA_oob_tcp_if_include", "lo")];

/// How gloo (PyTorch without GPUs) is told over which network processes of several machines talk. By itself it takes the address that the
/// machine's name stands for, which many machines know as their loopback alone.
const GLOO: &str = "GLOO_SOCKET_IFNAME";

/// The beginning of every container's environment: from the agent's own, with our programs around its PATH. `address`: the node's.
pub fn base_environment(
    bin: &Path,
    address: Ipv4Addr,
    own: impl IntoIterator<Item = (String, String)>,
) -> Vec<(String, String)> {
    let mut env = Vec::new();
    let mut path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned();
    for (name, value) in own {
        let wanted =
            INHERITED.contains(&name.as_str()) || INHERITED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        if name == "PATH" {
            path = value;
        } else if wanted && name != "NVIDIA_VISIBLE_DEVICES" {
            env.retain(|(held, _)| *held != name);
            env.push((name, value));
        }
    }
    env.push(("PATH".to_owned(), with_programs(&path, bin)));
    env.extend(OPEN_MPI.into_iter().chain(INTEL_MPI).map(|(name, value)| (name.to_owned(), value.to_owned())));
    if address.is_loopback() {
        env.extend(OPEN_MPI_ALONE.map(|(name, value)| (name.to_owned(), value.to_owned())));
    } else if let Some(network) = crate::host::interface(address) {
        env.push((GLOO.to_owned(), network));
    }
    if nix::unistd::geteuid().is_root() {
        // Open MPI refuses root, which in an image is a mistake; here the user is root.
        env.push(("OMPI_ALLOW_RUN_AS_ROOT".to_owned(), "1".to_owned()));
        env.push(("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM".to_owned(), "1".to_owned()));
    }
    env.sort();
    env
}

/// A PATH with our programs around it, once.
pub fn with_programs(path: &str, bin: &Path) -> String {
    let (first, last) = (bin.join("first").display().to_string(), bin.display().to_string());
    let parts = path.split(':').filter(|part| !part.is_empty() && *part != first && *part != last);
    let parts: Vec<&str> = [first.as_str()].into_iter().chain(parts).chain([last.as_str()]).collect();
    parts.join(":")
}

/// A program of this machine in the place of an image's: the program that composes the agent knows such images, the agent does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandIn {
    /// The last part of the image's name, without tag and digest.
    pub image: String,
    /// The Python module that is the image's program, for pods that name it themselves.
    pub module: String,
    pub argv: Vec<String>,
    /// The folder that the program fills, and the variable that tells it where that is.
    pub folder: String,
    pub variable: String,
}

impl StandIn {
    /// Whether this is what the container means to run: the image's own program, or its module by name.
    pub fn stands_for(&self, container: &Container) -> bool {
        let words: Vec<&str> = container.command.iter().flatten().map(String::as_str).collect();
        let is_module = |words: &[&str]| match words {
            [python, "-m", module] => matches!(*python, "python" | "python3") && *module == self.module,
            _ => false,
        };
        match words.as_slice() {
            [] => container.image.as_deref().is_some_and(|image| image_name(image) == self.image),
            ["bash" | "sh" | "/bin/bash" | "/bin/sh", "-c", line] => {
                is_module(&line.split_whitespace().collect::<Vec<_>>())
                    && container.args.iter().flatten().next().is_none()
            }
            words => is_module(words),
        }
    }
}

/// `registry.example:443/a/b:tag@sha256:…` is `b`.
fn image_name(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    let last = name.rsplit('/').next().unwrap_or_default();
    last.split(':').next().unwrap_or_default()
}

/// Whether the container is an ssh server, which is replaced by our stand-in.
pub fn is_sshd(container: &Container) -> bool {
    let program = container.command.iter().chain(&container.args).flatten().next();
    program.is_some_and(|program| program.rsplit('/').next() == Some("sshd"))
}

/// Whether the container waits for the workers of an MPI job, in which case our stand-in asks the node.
pub fn is_mpi_wait(container: &Container) -> bool {
    let words: Vec<&str> = container.command.iter().chain(&container.args).flatten().map(String::as_str).collect();
    matches!(words.as_slice(), [program, "mpi-wait", ..] if program.rsplit('/').next() == Some("trainyard"))
}

/// Whether a container finds the hosts of an MPI job where operators mount them.
pub fn mounts_hosts(container: &Container) -> bool {
    container.volume_mounts.iter().flatten().any(|mount| mount.mount_path.trim_end_matches('/') == CONFIG_PATH)
}

/// Whether the pod's first container, which runs its mpirun, does.
pub fn has_hosts(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.containers.first()).is_some_and(mounts_hosts)
}

/// Leaves the last word of the container that this process is in where its pod looks for it; nowhere outside of pods.
pub fn leave_word(word: &str) {
    let file = fs::OpenOptions::new().write(true).truncate(true).open("/dev/termination-log");
    // a container without such a file says it in its log
    let _ = file.and_then(|mut file| std::io::Write::write_all(&mut file, word.as_bytes()));
}

/// The message of a launcher that waited in vain for `most`: which of `count` workers are missing, or why the hostfile named none.
/// `reached`: in which way they were not.
pub fn missing_workers(
    hostfile: &Path,
    count: usize,
    missing: io::Result<Vec<String>>,
    reached: &str,
    most: Duration,
) -> String {
    let missing = match missing {
        Ok(missing) => missing,
        Err(error) => return format!("{}: {error}: there is nobody to wait for", hostfile.display()),
    };
    let more = missing.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let named = missing.get(..NAMED).unwrap_or(&missing).join(", ");
    format!("{} of {count} workers could not be {reached} within {} s: {named}{more}", missing.len(), most.as_secs())
}

/// Makes the directories of programs. `shim` is what runs a shim.
///
/// # Errors
/// The directory cannot be written.
pub fn make(bin: &Path, shim: &[OsString]) -> std::io::Result<()> {
    let words: Vec<String> = shim.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    let pods = bin.with_file_name("pods");
    let ssh = format!(
        "#!/bin/sh\n# Written by trainyard: ssh to another pod needs no server; to anywhere else it is the machine's own.\n\
         exec {} --ssh {} \"$@\"\n",
        words.join(" "),
        quoted(&pods.to_string_lossy())
    );
    let reach = format!(
        "#!/bin/sh\n# Written by trainyard: waits for pods, which have no SSH servers that could be asked.\nshift\n\
         exec {} --reach {} \"$@\"\n",
        words.join(" "),
        quoted(&pods.to_string_lossy())
    );
    let warm = format!(
        "#!/bin/sh\n# Written by trainyard: starts a command from a process that waits with what it would import.\n\
         exec {} --warm {} \"$@\"\n",
        words.join(" "),
        quoted(&crate::warm::directory(bin.parent().unwrap_or(bin)).to_string_lossy())
    );
    let own = format!(
        "#!/bin/sh\n# Written by trainyard: pods find the program of their control plane, of its version.\nexec {} \"$@\"\n",
        words.first().map_or("trainyard", String::as_str)
    );
    fs::create_dir_all(bin.join("first"))?;
    let programs = [
        ("python", PYTHON),
        ("pip", PIP),
        ("torchrun", TORCHRUN),
        ("mpirun", MPIRUN),
        ("sshd", SSHD),
        ("mpi-wait", reach.as_str()),
        ("first/ssh", ssh.as_str()),
        ("first/trainyard-warm", warm.as_str()),
        ("first/trainyard", own.as_str()),
    ];
    programs.into_iter().try_for_each(|(name, text)| write_program(&bin.join(name), text))
}

/// Replaces the file in one step: pods may be running it.
fn write_program(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let tmp = path.with_extension(format!("tmp{}", std::process::id()));
    fs::write(&tmp, text)?;
    fs::set_permissions(&tmp, fs::Permissions::from_mode(0o755))?;
    fs::rename(tmp, path)
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

const PYTHON: &str = r#"#!/bin/sh
# Written by trainyard: the last resort for "python" on a machine that has python3 only.
exec python3 "$@"
"#;

const PIP: &str = r#"#!/bin/sh
# Written by trainyard: the last resort for "pip" on a machine whose Python has it as a module only.
exec python3 -m pip "$@"
"#;

const TORCHRUN: &str = r#"#!/bin/sh
# Written by trainyard: the last resort for "torchrun".
if command -v python >/dev/null 2>&1; then python=python; else python=python3; fi
if "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null; then
  exec "$python" -m torch.distributed.run "$@"
fi
where=$("$python" -c 'import sys; print(sys.executable)' 2>/dev/null || echo "$python, which does not run")
echo "torchrun: PyTorch is not installed for the Python that this pod would use ($where)." >&2
echo "torchrun: install it with: $where -m pip install torch" >&2
exit 127
"#;

const MPIRUN: &str = r#"#!/bin/sh
# Written by trainyard: the last resort for "mpirun".
echo "mpirun: Open MPI is not installed on this machine, or not on the PATH of this pod." >&2
echo "mpirun: on Debian and Ubuntu, install it with: apt-get install openmpi-bin" >&2
exit 127
"#;

const SSHD: &str = r#"#!/bin/sh
# Written by trainyard: stands in for sshd in pods; commands come through the pod's shim.
PATH=$PATH:/usr/bin:/bin # whatever the pod's is, "sleep" must be found
trap 'exit 0' TERM INT
while :; do sleep 3600 & wait $!; done
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_mpi_is_held_to_loopback_only_where_no_other_machine_takes_part() {
        let interfaces = |address| {
            let env = base_environment(Path::new("/bin"), address, []);
            let found = env.into_iter().filter(|(name, _)| name.ends_with("_tcp_if_include"));
            found.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        let loopback = ["OMPI_MCA_btl_tcp_if_include=lo", "OMPI_MCA_oob_tcp_if_include=lo"];
        assert_eq!(interfaces(Ipv4Addr::LOCALHOST), loopback);
        assert_eq!(interfaces(Ipv4Addr::new(127, 3, 2, 1)), loopback, "machines that are this one, too");
        assert_eq!(interfaces(Ipv4Addr::new(203, 0, 113, 77)), [""; 0]);
    }

    #[test]
    fn images_and_modules_are_stood_in_for() {
        let stand_in = StandIn {
            image: "dataset-initializer".to_owned(),
            module: "pkg.initializers.dataset".to_owned(),
            argv: vec!["own".to_owned()],
            folder: "/workspace/dataset".to_owned(),
            variable: "INTO".to_owned(),
        };
        let container = |image: &str, command: &[&str]| Container {
            image: Some(image.to_owned()),
            command: Some(command.iter().map(|word| (*word).to_owned()).collect()),
            ..Container::default()
        };
        for (image, command, expected) in [
            ("ghcr.io/kubeflow/trainer/dataset-initializer", &[][..], true),
            ("registry.example:443/x/dataset-initializer:v2.3.0@sha256:00", &[], true),
            ("dataset-initializer", &[], true),
            ("x/my-dataset-initializer", &[], false),
            ("x/dataset-initializer/other", &[], false),
            ("any", &["bash", "-c", "python -m pkg.initializers.dataset"], true),
            ("any", &["python", "-m", "pkg.initializers.dataset"], true),
            ("any", &["python", "-m", "pkg.initializers.model"], false),
            ("x/dataset-initializer", &["sleep", "1"], false),
            ("any", &["bash", "-c", "python -m pkg.initializers.dataset && x"], false),
        ] {
            assert_eq!(stand_in.stands_for(&container(image, command)), expected, "{image} {command:?}");
        }
    }
}
