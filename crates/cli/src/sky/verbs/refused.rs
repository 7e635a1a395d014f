//! What of SkyPilot's options and task files is not there: said in a line before anything is done, never passed over.

use crate::sky::submit::{Trouble, said, value_error};
use ::sky::Task;
use ::sky::commands::Call;
use api::sky::{ClusterHook, HookEvent};

/// Options that nothing here acts on, by command.
const OPTIONS: [(&str, &[&str]); 8] = [
    ("sky jobs launch", &["job_group", "cluster", "workspace"]),
    ("sky launch", &["resize", "clone_disk_from", "priority", "workspace", "backend_name"]),
    ("sky status", &["endpoints", "endpoint"]),
    ("sky logs", &["provision"]),
    ("sky check", &["workspace", "verbose"]),
    ("sky jobs cancel", &["task"]),
    ("sky gpus list", &["verbose"]),
    ("sky show-gpus", &["verbose"]),
];

/// Options of `sky` itself that change the files that a shell reads when it starts.
const COMPLETION: [&str; 2] = ["--install-shell-completion", "--uninstall-shell-completion"];

/// The line about one of them before the command.
pub(in crate::sky) fn completion(words: &[String]) -> Option<String> {
    let mut before = words.iter().take_while(|word| word.starts_with('-'));
    let of = |word: &String| {
        let option = word.split('=').next().unwrap_or_default();
        COMPLETION.into_iter().find(|name| *name == option)
    };
    let option = before.find_map(of)?;
    Some(format!(
        "`sky {option}` is not there: `make install` and the .deb install the completion of `sky` together with that of \
         `trainyard`; `trainyard completions bash` prints it."
    ))
}

/// What else to do, by command and option.
fn instead(path: &str, option: &str) -> &'static str {
    match option {
        "verbose" if path == "sky check" => "credentials are not looked at, so there are no accounts to show",
        "clone_disk_from" => "disks are not copied; `file_mounts` and `setup` fill a new machine",
        "resize" => "launch a cluster of another name, or `sky down` this one first",
        "priority" => "jobs of a cluster run first in, first out",
        "job_group" => "a job cannot join a running job; add the task to the file of the job group, and launch that",
        "cluster" => "use `--name NAME`; the clusters are named NAME-ID-TASK-ATTEMPT",
        "workspace" => "there is one workspace; namespaces of the control plane keep clusters apart",
        "backend_name" => "`--infra local` runs on this machine",
        "endpoints" | "endpoint" => "ports of machines are reached at the addresses that `sky status --ip NAME` shows",
        "provision" => "`sky status -v` shows what the provider said last",
        "task" => "cancelling a job ends all its tasks; leave the option out",
        _ => "what there is to show is shown without it",
    }
}

/// The line about an option that is given and not there.
pub(in crate::sky) fn option(call: &Call) -> Option<String> {
    if call.is_set("endpoints") && call.value("endpoint").is_some() {
        return None; // the two together are a mistake of another kind
    }
    let (_, names) = OPTIONS.iter().find(|(path, _)| *path == call.path)?;
    let given = |name: &&&str| call.value(name).is_some_and(|value| value != "false");
    let name = names.iter().find(given)?;
    let all = ::sky::commands::commands();
    let params = all.iter().find(|command| command.path == call.path).into_iter().flat_map(|command| &command.params);
    let option = params.into_iter().find(|param| param.name == **name).and_then(|param| param.opts.first().cloned());
    let option = option.unwrap_or_else(|| (*name).to_owned());
    Some(format!("`{} {option}` is not there: {}.", call.path, instead(&call.path, name)))
}

/// Refuses a task that asks for something that no cluster gives it. Prints a note about settings without effect.
///
/// # Errors
/// The line about it.
pub(super) fn task(task: &Task) -> Result<(), Trouble> {
    let absent = |what: String| Err(said("sky.exceptions.NotSupportedError", what));
    if let Some((path, _)) = task.volumes.iter().next() {
        return absent(format!("{}: volumes are not there; leave `volumes` out.", path.text()));
    }
    if task.resources.list.iter().any(|one| one.volumes.as_ref().is_some_and(|list| !list.is_empty())) {
        return absent("`resources.volumes`: disks are not attached here; leave them out.".to_owned());
    }
    mounts(task)?;
    let seldom = |hook: &ClusterHook| hook.events == [HookEvent::Preemption];
    if managed::launch::hooks(task).iter().any(seldom) {
        eprintln!(
            "A hook for `preemption` alone has no effect: no provider here warns before it takes a machine away."
        );
    }
    Ok(())
}

/// What a task mounts that nobody fetches.
///
/// # Errors
/// The line about it.
pub(super) fn mounts(task: &Task) -> Result<(), Trouble> {
    if let Some((target, _)) = task.mounts.buckets.first() {
        return Err(value_error(format!(
            "{target}: buckets are not mounted yet; give a local path, or fetch the data in `setup`."
        )));
    }
    let url = |from: &&(String, String)| ::sky::mounts::is_cloud_url(&from.1);
    if let Some((_, from)) = task.mounts.files.iter().find(url) {
        return Err(value_error(format!(
            "{from}: nothing is fetched from there yet; give a local path, or fetch it in `setup`."
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::sky::commands::{Parsed, commands, parse};

    fn call(words: &str) -> Call {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        match parse(&commands(), &words) {
            Ok(Parsed::Call(call)) => call,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn options_that_are_not_there_are_named() {
        for (words, says) in [
            ("launch --resize -c x true", "`sky launch --resize` is not there"),
            ("launch --clone x true", "`sky launch --clone-disk-from` is not there: disks"),
            ("launch --dryrun -w team true", "`sky launch --workspace`"),
            ("launch --docker true", "`sky launch --docker`"),
            ("status --endpoint 80 x", "`sky status --endpoint`"),
            ("logs x --provision", "`sky logs --provision`"),
            ("check -w team", "`sky check --workspace`"),
            ("check -v", "`sky check --verbose` is not there: credentials"),
            ("gpus list -v", "`sky gpus list --verbose` is not there: what there is"),
            ("jobs launch --job-group 3 true", "`sky jobs launch --job-group` is not there: a job cannot join"),
            ("jobs cancel 3 --task 1", "`sky jobs cancel --task` is not there: cancelling a job ends all its tasks"),
        ] {
            let told = option(&call(words)).unwrap_or_default();
            assert!(told.starts_with(says) && told.ends_with('.'), "{words}: {told}");
        }
        for words in [
            "launch --fast --no-setup true",
            "jobs launch --no-job-group true",
            "status -v -r",
            "logs x 1 --tail 3",
            "check",
            "down --purge x",
        ] {
            assert_eq!(option(&call(words)), None, "{words}");
        }
    }

    #[test]
    fn the_completion_of_shells_is_installed_elsewhere() {
        let of = |line: &str| completion(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for line in ["--install-shell-completion bash", "--uninstall-shell-completion=zsh status"] {
            assert!(of(line).is_some_and(|told| told.contains("trainyard completions")), "{line}");
        }
        assert_eq!(of("exec dev --install-shell-completion"), None);
    }

    #[test]
    fn every_option_of_the_list_is_one_of_its_command() {
        for (path, names) in OPTIONS {
            let command = commands().into_iter().find(|command| command.path == path).unwrap();
            for name in names {
                assert!(command.params.iter().any(|param| param.name == *name), "{path} {name}");
            }
        }
    }

    #[test]
    fn what_a_task_cannot_have_is_named() {
        let refused = |text: &str| {
            let catalogue = placement::Catalogue::default();
            let file = ::sky::file::File::read(text, &Default::default(), ::sky::schema::Reader::Client, &catalogue);
            match task(&file.unwrap().tasks[0]) {
                Err(Trouble::Said(told)) => told,
                Err(Trouble::Client(_)) => unreachable!(),
                Ok(()) => String::new(),
            }
        };
        for (text, says) in [
            ("run: x\nvolumes: {/mnt/a: b}", "/mnt/a: volumes are not there"),
            ("run: x\nfile_mounts: {/a: 's3://b/c'}", "s3://b/c"),
            ("run: x\nfile_mounts: {/a: {name: b, mode: MOUNT}}", "/a: buckets are not mounted"),
        ] {
            let told = refused(text);
            assert!(told.contains(says), "{text}: {told}");
        }
        assert_eq!(refused("run: x\nresources: {cpus: 2, autostop: 5}"), "");
    }
}
