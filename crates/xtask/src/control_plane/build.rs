//! Builds the programs of a real control plane once, from pinned Go modules, and caches them.

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program: its name, the module that pins it, and its package.
pub struct Program {
    pub name: &'static str,
    module: &'static str,
    package: &'static str,
}

/// The module that pins most programs, below the repository's root.
const MAIN: &str = "e2e/kubernetes";
/// Kueue has its own: its requirements would move what the API server is built from, and a build without it need not
/// build it.
const KUEUE: &str = "e2e/kubernetes/kueue";
/// So has mpi-operator: it is built from the libraries that it was released with.
const MPI: &str = "e2e/kubernetes/mpi";

/// Helm brings libraries of its own; those that it shares with Kubernetes have the same versions, and so are built once.
const HELM: &str = "e2e/helm";

/// All programs; the first three are always wanted.
pub const PROGRAMS: [Program; 9] = [
    Program { name: "etcd", module: MAIN, package: "go.etcd.io/etcd/server/v3" },
    Program { name: "kube-apiserver", module: MAIN, package: "k8s.io/kubernetes/cmd/kube-apiserver" },
    Program { name: "kube-controller-manager", module: MAIN, package: "k8s.io/kubernetes/cmd/kube-controller-manager" },
    Program { name: "jobset", module: MAIN, package: "sigs.k8s.io/jobset" },
    Program { name: "trainer", module: MAIN, package: "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager" },
    Program { name: "kueue", module: KUEUE, package: "sigs.k8s.io/kueue/cmd/kueue" },
    Program { name: "mpi-operator", module: MPI, package: "github.com/kubeflow/mpi-operator/cmd/mpi-operator" },
    Program { name: "helm", module: HELM, package: "helm.sh/helm/v3/cmd/helm" },
    Program { name: "helm4", module: HELM, package: "helm.sh/helm/v4/cmd/helm" },
];

/// What of a program's source cannot stand where it is not in a container: a text in the one file of its package.
struct Edit {
    program: &'static str,
    source: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

/// Kueue wants a certificate for its metrics from a folder of the machine, even where it serves none. It gets that of its
/// webhooks.
const EDIT: Edit = Edit {
    program: "kueue",
    source: "sigs.k8s.io/kueue",
    file: "cmd/kueue/main.go",
    from: "\"/etc/kueue/metrics/certs\"",
    to: "\"kueue/k8s-webhook-server/serving-certs\"",
};

/// Where built programs lie, and where the sources of their modules are.
pub struct Programs {
    root: PathBuf,
    /// The cache's folders for the pinned versions, by the module that pins them.
    folders: BTreeMap<&'static str, PathBuf>,
}

impl Programs {
    /// Builds those of the programs that the cache lacks. The first build takes minutes, later ones none.
    pub fn build(root: &Path, wanted: &[&str]) -> Result<Self> {
        let mut programs = Self { root: root.to_owned(), folders: BTreeMap::new() };
        let wanted: Vec<&Program> = PROGRAMS.iter().filter(|program| wanted.contains(&program.name)).collect();
        for program in &wanted {
            if !programs.folders.contains_key(program.module) {
                let folder = cache()?.join(pins(root, program.module)?);
                std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
                programs.folders.insert(program.module, folder);
            }
        }
        for (module, folder) in &programs.folders {
            // Two builds at once would do the same work twice.
            let lock = File::create(folder.join("lock")).context("making the cache's lock")?;
            lock.lock().context("waiting for another build")?;
            let is_missing = |program: &&&Program| program.module == *module && !folder.join(program.name).exists();
            let missing: Vec<&Program> = wanted.iter().filter(is_missing).copied().collect();
            if !missing.is_empty() {
                programs.go_build(module, folder, &missing)?;
            }
        }
        Ok(programs)
    }

    /// The cache's folders, one for each module.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.values().map(PathBuf::as_path)
    }

    /// Where a program lies, one of those that were wanted.
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        let folder = module(name).and_then(|module| self.folders.get(module));
        Ok(folder.with_context(|| format!("{name} was not built"))?.join(name))
    }

    fn go_build(&self, module: &str, folder: &Path, missing: &[&Program]) -> Result<()> {
        let names: Vec<&str> = missing.iter().map(|program| program.name).collect();
        eprintln!("building {} (once; some minutes)", names.join(", "));
        let mut stamp = "-s -w".to_owned();
        // programs that are not of Kubernetes say the version of their libraries, and would not start without one
        if let Ok(version) = version(&self.root.join(module), "k8s.io/kubernetes") {
            let minor = version.split('.').nth(1).unwrap_or_default();
            for (name, value) in [("gitVersion", version.as_str()), ("gitMajor", "1"), ("gitMinor", minor)] {
                stamp.push_str(&format!(" -X k8s.io/component-base/version.{name}={value}"));
            }
        }
        let out = tempfile::tempdir_in(folder).context("making a folder in the cache")?;
        let mut command = go(&self.root.join(module));
        command.env("CGO_ENABLED", "0").args(["build", "-mod=readonly", "-ldflags", &stamp, "-o"]).arg(out.path());
        for program in missing {
            command.arg(if program.name == EDIT.program { self.edited(out.path())? } else { program.package.into() });
        }
        command.stdout(Stdio::null());
        let status = command.status().context("running go build")?;
        ensure!(status.success(), "go build of {} failed in {module}; it needs Go's module proxy", names.join(", "));
        for program in missing {
            let built = out.path().join(file_name(program.package));
            std::fs::rename(&built, folder.join(program.name))
                .with_context(|| format!("moving {} into the cache", built.display()))?;
        }
        Ok(())
    }

    /// Writes the edited source, a package of one file, and says where it is.
    fn edited(&self, out: &Path) -> Result<PathBuf> {
        let original = self.sources(EDIT.program, EDIT.source)?.join(EDIT.file);
        let text = read(&original)?;
        ensure!(text.contains(EDIT.from), "{} has no {} to replace", original.display(), EDIT.from);
        // the program is called as its file
        let edited = out.join(EDIT.program).with_extension("go");
        std::fs::write(&edited, text.replace(EDIT.from, EDIT.to)).context("writing the edited source")?;
        Ok(edited)
    }

    /// The folder of a module's sources, whose manifests belong to a program.
    pub fn sources(&self, program: &str, source: &str) -> Result<PathBuf> {
        let at = module(program).with_context(|| format!("there is no program {program}"))?;
        let output = go(&self.root.join(at))
            .args(["mod", "download", "-json", source])
            .output()
            .context("running go mod download")?;
        ensure!(
            output.status.success(),
            "go mod download {source}: {}",
            String::from_utf8_lossy(&output.stdout).trim()
        );
        let found: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        Ok(found["Dir"].as_str().with_context(|| format!("{source} has no folder"))?.into())
    }
}

/// The module that pins a program.
fn module(program: &str) -> Option<&'static str> {
    PROGRAMS.iter().find(|known| known.name == program).map(|known| known.module)
}

/// `go` in a folder, whose version is the one that is there.
fn go(folder: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(folder).env("GOTOOLCHAIN", "local");
    if std::env::var_os("GOGC").is_none() {
        // with fewer garbage collections its compiler takes a twelfth less processor time, and more memory, of which there is enough
        command.env("GOGC", "400");
    }
    command
}

/// What `go build` calls the program of a package: its last element that is not a major version.
fn file_name(package: &str) -> &str {
    let is_version = |part: &&str| part.strip_prefix('v').is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    package.rsplit('/').find(|part| !is_version(part)).unwrap_or(package)
}

/// `$XDG_CACHE_HOME/trainyard-kubernetes`, or that in `~/.cache`.
fn cache() -> Result<PathBuf> {
    let folder = match std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => std::env::home_dir().context("neither XDG_CACHE_HOME nor HOME is set")?.join(".cache"),
    };
    Ok(folder.join("trainyard-kubernetes"))
}

/// A name for what a module pins: its programs, its file and the compiler.
fn pins(root: &Path, module: &str) -> Result<String> {
    let mut digest = Sha256::new();
    for program in PROGRAMS.iter().filter(|program| program.module == module) {
        digest.update(program.package);
        if program.name == EDIT.program {
            digest.update(EDIT.to);
        }
    }
    digest.update(read(&root.join(module).join("go.mod"))?);
    let output = go(root).arg("version").output();
    let output =
        output.context("Go is missing: install the version that e2e/kubernetes/go.mod names, or a later one")?;
    digest.update(&output.stdout);
    Ok(digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// The version of a module that a `go.mod` requires.
fn version(folder: &Path, module: &str) -> Result<String> {
    let path = folder.join("go.mod");
    let text = read(&path)?;
    let lines = text.lines().filter(|line| !line.contains("=>"));
    let found = lines
        .filter_map(|line| line.trim().trim_start_matches("require ").strip_prefix(module)?.strip_prefix(' '))
        .next();
    let version = found.and_then(|rest| rest.split_whitespace().next());
    Ok(version.with_context(|| format!("{} does not require {module}", path.display()))?.to_owned())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_called_as_go_calls_them() {
        assert_eq!(file_name("go.etcd.io/etcd/server/v3"), "server");
        assert_eq!(file_name("sigs.k8s.io/kueue/cmd/kueue"), "kueue");
        assert_eq!(file_name("k8s.io/vault"), "vault");
    }

    #[test]
    fn every_program_is_a_pinned_tool() {
        let root = crate::root();
        for program in &PROGRAMS {
            let text = read(&root.join(program.module).join("go.mod")).expect("the module is there");
            let tools: Vec<&str> = text.lines().map(|line| line.trim().trim_start_matches("tool ")).collect();
            assert!(tools.contains(&program.package), "{}", program.package);
        }
        let version = version(&root.join(MAIN), "k8s.io/kubernetes").expect("it is pinned");
        assert!(version.starts_with("v1."), "{version}");
    }

    #[test]
    fn helm_shares_the_libraries_of_kubernetes() {
        let root = crate::root();
        for library in ["k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/api"] {
            let pinned = |module: &str| {
                let text = read(&root.join(module).join("go.mod")).expect("the module is there");
                let line = text.lines().find(|line| line.starts_with(&format!("replace {library} => ")));
                line.unwrap_or_else(|| panic!("{module} does not pin {library}")).to_owned()
            };
            assert_eq!(pinned(MAIN), pinned(HELM));
        }
    }
}
