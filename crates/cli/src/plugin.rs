//! kubectl's and oc's plugin `odh`: the names that we are called by then, and `plugin install`, which makes them.

use crate::exit;
use client::ClientError;
use client::codes::ErrorCode;
use grammar::PluginInstallArgs;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Names by which kubectl and oc call their plugin.
const PLUGINS: [&str; 2] = ["kubectl-odh", "oc-odh"];
/// The name by which kubectl asks for completions.
pub(crate) const COMPLETER: &str = "kubectl_complete-odh";

/// The command line as we read it, and whether kubectl or oc has called: `kubectl-odh mpijob get` means `trainyard odh mpijob get`.
pub fn words(words: impl IntoIterator<Item = OsString>) -> (Vec<OsString>, bool) {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let is_plugin = called(words.first()).is_some_and(|name| PLUGINS.iter().any(|plugin| name == *plugin));
    if is_plugin {
        words.splice(..1, ["trainyard".into(), "odh".into()]);
    }
    (words, is_plugin)
}

/// Whether kubectl asks for completions.
pub(crate) fn completes() -> bool {
    called(std::env::args_os().next().as_ref()).is_some_and(|name| name == COMPLETER)
}

/// Commands that we propose, as whoever called us would type them: `trainyard mpijob get` is `kubectl odh mpijob get` for kubectl.
pub fn as_called(text: &str) -> String {
    as_called_by(called(std::env::args_os().next().as_ref()), text)
}

fn as_called_by(program: Option<&OsStr>, text: &str) -> String {
    match PLUGINS.iter().find(|plugin| program.is_some_and(|program| program == **plugin)) {
        Some(plugin) => text.replace("trainyard mpijob ", &format!("{} mpijob ", plugin.replace('-', " "))),
        None => text.to_owned(),
    }
}

fn called(program: Option<&OsString>) -> Option<&OsStr> {
    Path::new(program?).file_name()
}

/// Makes the links.
pub(crate) fn install(args: &PluginInstallArgs) -> Result<u8, ClientError> {
    let failed = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| ClientError::Io { doing, path, source }
    };
    let program = std::env::current_exe().map_err(failed("find", Path::new("trainyard")))?;
    let folder = match &args.dir {
        Some(folder) => std::path::absolute(folder).map_err(failed("find", folder))?,
        None => program.parent().unwrap_or(Path::new("/")).to_owned(),
    };
    let links: Vec<PathBuf> = PLUGINS.iter().chain([&COMPLETER]).map(|name| folder.join(name)).collect();
    // all are looked at before one is made
    if let Some(foreign) = links.iter().find(|link| link.symlink_metadata().is_ok() && !is_ours(link)) {
        let told = format!(
            "{} is there and is not ours: move it away, or choose another folder with --dir",
            foreign.display()
        );
        return Err(ClientError::Api(ErrorCode::OutputExists, told));
    }
    std::fs::create_dir_all(&folder).map_err(failed("make", &folder))?;
    for link in &links {
        if link.symlink_metadata().is_ok() {
            std::fs::remove_file(link).map_err(failed("replace", link))?;
        }
        std::os::unix::fs::symlink(&program, link).map_err(failed("make", link))?;
        println!("{}", link.display());
    }
    notes(&folder, std::env::var_os("PATH").unwrap_or_default().as_os_str())
        .iter()
        .for_each(|note| eprintln!("{note}"));
    Ok(exit::OK)
}

/// Whether a link leads to a trainyard, also to one that is gone.
fn is_ours(link: &Path) -> bool {
    std::fs::read_link(link).is_ok_and(|target| target.file_name() == Some(OsStr::new("trainyard")))
}

/// What keeps kubectl from finding us.
fn notes(folder: &Path, path: &OsStr) -> Vec<String> {
    let mut notes = Vec::new();
    let same = |other: &Path| {
        other == folder || folder.canonicalize().is_ok_and(|real| Some(real) == other.canonicalize().ok())
    };
    let folders: Vec<PathBuf> = std::env::split_paths(path).collect();
    let Some(at) = folders.iter().position(|other| same(other)) else {
        let folder = folder.display();
        return vec![format!(
            "kubectl looks for plugins on the PATH, and {folder} is not there: export PATH=\"{folder}:$PATH\""
        )];
    };
    for (number, other) in folders.iter().enumerate() {
        for name in PLUGINS.iter().filter(|_| number < at) {
            if other.join(name).exists() {
                notes.push(format!("{} comes before it on the PATH", other.join(name).display()));
            }
        }
        for name in ["kubectl-odh-mpijob", "oc-odh-mpijob"] {
            if other.join(name).exists() {
                notes.push(format!(
                    "{} is what `odh mpijob` calls: a longer name goes first",
                    other.join(name).display()
                ));
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> (Vec<String>, bool) {
        let (words, plugin) = super::words(words.iter().map(OsString::from));
        (words.into_iter().map(|word| word.into_string().expect("it is text")).collect(), plugin)
    }

    #[test]
    fn names_of_plugins_mean_odh() {
        for name in ["kubectl-odh", "/usr/bin/oc-odh"] {
            let (words, plugin) = read(&[name, "mpijob", "get", "-n", "team"]);
            assert_eq!((words.join(" ").as_str(), plugin), ("trainyard odh mpijob get -n team", true));
        }
        assert_eq!(read(&["trainyard", "get"]), (vec!["trainyard".to_owned(), "get".to_owned()], false));
        assert_eq!(read(&[]), (Vec::new(), false));
    }

    #[test]
    fn commands_are_proposed_as_they_were_called() {
        let told = |program: &str| as_called_by(Some(OsStr::new(program)), "see: trainyard mpijob get");
        assert_eq!(told("kubectl-odh"), "see: kubectl odh mpijob get");
        assert_eq!(told("oc-odh"), "see: oc odh mpijob get");
        assert_eq!(told("trainyard"), "see: trainyard mpijob get");
    }

    #[test]
    fn what_is_in_the_way_is_said() {
        let root = std::env::temp_dir().join(format!("trainyard-plugin-{}", std::process::id()));
        let (first, ours) = (root.join("first"), root.join("ours"));
        for folder in [&first, &ours] {
            std::fs::create_dir_all(folder).expect("it can be made");
        }
        let path = std::env::join_paths([&first, &ours]).expect("they can be joined");
        assert!(notes(&ours, &path).is_empty());
        std::fs::write(first.join("kubectl-odh"), "").expect("it can be written");
        std::fs::write(ours.join("kubectl-odh-mpijob"), "").expect("it can be written");
        let told = notes(&ours, &path);
        assert!(told[0].contains("first/kubectl-odh comes before it"), "{told:?}");
        assert!(told[1].contains("a longer name goes first") && told.len() == 2, "{told:?}");
        assert!(notes(&root, &path)[0].contains("export PATH="));
        std::fs::remove_dir_all(root).expect("it can be removed");
    }
}
