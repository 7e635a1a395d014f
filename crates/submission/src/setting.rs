//! The environment in which the processes of a job on this machine start.

use crate::python::Variables;
use std::path::{Path, PathBuf};

/// Variables of the caller that a job on this machine inherits, so that it finds the same Python and packages.
pub(crate) const INHERITED: [&str; 6] =
    ["PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH", "HF_HOME"];

/// The environment of a job's processes on this machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setting {
    /// Inherited from the caller.
    pub inherited: Vec<(String, String)>,
    /// `--env`.
    pub given: Vec<(String, String)>,
    /// The interpreter that flags name.
    pub python: Option<PathBuf>,
    /// The folder in which they start.
    pub folder: PathBuf,
}

impl Setting {
    /// Puts this interpreter first: the job finds programs beside it before others, and its virtual environment is active.
    pub(crate) fn take(&mut self, python: PathBuf) {
        let beside = python.parent().unwrap_or(Path::new("/")).to_owned();
        let venv = beside.parent().filter(|root| root.join("pyvenv.cfg").exists()).map(Path::to_owned);
        self.inherited.retain(|(name, _)| name != "VIRTUAL_ENV");
        if let Some(venv) = venv {
            self.inherited.push(("VIRTUAL_ENV".to_owned(), venv.to_string_lossy().into_owned()));
        }
        // a PATH given by --env is the user's own choice
        let beside = beside.to_string_lossy().into_owned();
        match self.inherited.iter_mut().find(|(name, _)| name == "PATH") {
            Some((_, path)) => *path = format!("{beside}:{path}"),
            None => self.inherited.push(("PATH".to_owned(), beside)),
        }
        self.python = Some(python);
    }

    /// All variables that differ from the caller's.
    pub(crate) fn variables(&self) -> Variables {
        self.inherited.iter().chain(&self.given).cloned().collect()
    }

    pub(crate) fn path(&self) -> String {
        self.variables().remove("PATH").unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_interpreter_comes_first_with_its_environment() {
        let root = std::env::temp_dir().join(format!("trainyard chosen {}", std::process::id()));
        std::fs::create_dir_all(root.join("bin")).unwrap();
        std::fs::write(root.join("pyvenv.cfg"), "").unwrap();
        let old = [("PATH".to_owned(), "/bin".to_owned()), ("VIRTUAL_ENV".to_owned(), "/old".to_owned())];
        let mut setting = Setting { inherited: old.to_vec(), ..Setting::default() };
        setting.take(root.join("bin/python"));
        assert_eq!(setting.path(), format!("{}/bin:/bin", root.display()));
        assert_eq!(setting.variables()["VIRTUAL_ENV"], root.to_string_lossy());
        let mut setting = Setting { inherited: old.to_vec(), ..Setting::default() };
        setting.take("/opt/python/bin/python3.13".into());
        assert!(!setting.variables().contains_key("VIRTUAL_ENV"), "another environment's");
        std::fs::remove_dir_all(root).unwrap();
    }
}
