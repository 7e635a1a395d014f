//! The codes of what goes wrong: `TY` and four digits for each error of the command line and each finding of `doctor`.
//!
//! Here are the codes below 1000; those from 1001 on are the reasons of `diagnose`. Each has a page in docs/errors, which is a part of
//! the binary: `trainyard explain TY0101` prints it. A code keeps its meaning for ever and is never given out again; a new one takes
//! the next free number of its block.

use diagnose::Reason;
use std::fmt;

macro_rules! codes {
    ($(#[doc = $title:literal] $($code:ident $name:ident: $meaning:literal,)+;)+) => {
        /// Something that goes wrong, and that a user can do something about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ErrorCode {
            $($(#[doc = $meaning] $name,)+)+
        }

        impl ErrorCode {
            /// `TY` and four digits.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($(Self::$name => stringify!($code),)+)+
                }
            }
        }

        /// The blocks of codes below 1000, in the order of their numbers. A code without a page does not compile.
        fn own() -> Vec<(&'static str, Vec<Entry>)> {
            vec![$(($title.trim_ascii(), vec![$(Entry {
                code: stringify!($code),
                name: stringify!($name),
                meaning: $meaning,
                page: include_str!(concat!("../../../docs/errors/", stringify!($code), ".md")),
            },)+]),)+]
        }
    };
}

codes! {
    /// The command line
    TY0001 FlagRefused: "A flag, or the value of a flag, cannot be used.",
    TY0002 FlagOfOtherPlace: "A flag does not apply to the place where the job would run.",
    TY0003 OutputExists: "A file that the command would write exists already.",
    TY0004 FileFailed: "A file or folder could not be read, written, made or locked.",
    TY0005 NoHomeFolder: "There is no folder for the data of the control plane.",
    TY0006 UnknownCode: "There is no such error code.",
    ;
    /// Reaching a server
    TY0101 NotRunning: "No control plane runs on this machine, and no cluster was named.",
    TY0102 NotReady: "The control plane was started and did not become ready.",
    TY0103 Unreachable: "The API server does not answer.",
    TY0104 Forbidden: "The API server knows the user and refuses the request.",
    TY0105 Unauthorized: "The API server does not accept the credentials of the kubeconfig.",
    TY0106 NotServed: "The cluster does not have Kubeflow Trainer's kinds.",
    TY0107 KubeconfigUnreadable: "The kubeconfig cannot be read.",
    TY0108 ContextMissing: "The kubeconfig does not have the context that was named, or names none.",
    TY0109 RequestRefused: "The API server refused the request.",
    TY0110 StreamLost: "The connection to a pod or a log broke before its end.",
    ;
    /// Before a job is created
    TY0201 ScriptMissing: "The script does not exist, or is not a file that can be run.",
    TY0202 WorkdirWrong: "`--workdir` is not a folder, or the script is not in it.",
    TY0203 PythonMissing: "The Python that the job would use does not exist or does not run.",
    TY0204 UvFailed: "uv could not provide the environment of the job.",
    TY0205 PackageMissing: "The Python of the job lacks a package that the script or the runtime needs.",
    TY0206 ScriptSyntax: "The script has a syntax error.",
    TY0207 ProgramMissing: "A program that the job needs is not on the `PATH` of the job.",
    TY0208 NotReadable: "The job may not read the script or enter its folder.",
    TY0209 ProgramNotExecutable: "The program to run may not be executed.",
    TY0210 CodeTooLarge: "The code is too large to be sent to a cluster, or has a name that cannot be sent.",
    TY0211 RuntimeUnknown: "The runtime does not exist on the server.",
    TY0212 RuntimeUnfit: "The runtime cannot take a script.",
    TY0213 DoesNotFit: "The job asks for more than this machine has.",
    TY0214 NameTaken: "A job of this name exists already.",
    TY0215 OutputFolder: "The folder for the results cannot be written.",
    TY0216 SearchTooLarge: "The search has too many trials.",
    ;
    /// Jobs that exist
    TY0301 NotFound: "The object that was named does not exist.",
    TY0302 RankMissing: "The job does not have the rank or the step that was named.",
    TY0303 AttemptMissing: "There is no log of the attempt that was named.",
    TY0304 NotInPod: "No pod of the job runs, or none at that rank.",
    TY0305 ExecRefused: "The pod takes no command.",
    TY0306 NothingToDo: "The job has ended, so it cannot be suspended or resumed.",
    TY0307 WaitTimedOut: "The job did not reach the state within the time of `--timeout`.",
    TY0308 WaitInVain: "The job ended in another state than the one that was waited for.",
    TY0309 MetricMissing: "The job has not reported a metric of this name.",
    TY0310 UsageUnknown: "The server does not say what pods use.",
    ;
    /// The control plane of this machine
    TY0401 AlreadyRunning: "A control plane runs already with this home.",
    TY0402 ListenFailed: "The control plane cannot listen on the address.",
    TY0403 DatabaseUnopened: "The database of the control plane cannot be opened.",
    TY0404 DatabaseNewer: "The database was written by a newer version of trainyard.",
    TY0405 KeysFailed: "The keys and certificates of the control plane cannot be used.",
    TY0406 KindsNotInstalled: "The control plane could not install its kinds and runtimes.",
    TY0407 NodeFailed: "The node agent could not start.",
    TY0408 AuditLogFailed: "The audit log cannot be written.",
    TY0409 StopFailed: "The control plane did not stop.",
    TY0410 PrintFailed: "The output could not be written.",
    ;
    /// Stored objects, backup and restore
    TY0501 RestoreUnfinished: "A restore into this home was interrupted.",
    TY0502 BackupFailed: "The backup could not be made.",
    TY0503 NothingToBackUp: "There is nothing to back up.",
    TY0504 RestoreWhileRunning: "A backup cannot be restored while the control plane runs.",
    TY0505 RestoreOverData: "The home holds the data of a control plane.",
    TY0506 NotABackup: "The file is not a backup that this version can restore.",
    TY0507 NotDamaged: "No damaged object has the name that was given, or several have.",
    TY0508 DamagedFailed: "Damaged objects could not be listed or dropped.",
    ;
    /// The operator of a cluster
    TY0601 OperatorSettings: "A flag, the configuration file or a variable of the operator is wrong.",
    TY0602 OperatorFailed: "The operator could not start or go on.",
    ;
    /// What doctor finds
    TY0701 NotVisible: "`doctor` may not see a part of the cluster.",
    TY0702 ServerVersion: "The server is too old, or is of another version than this command.",
    TY0703 ServerUnhealthy: "A health check of the API server fails.",
    TY0704 KindMissing: "A CustomResourceDefinition is not installed.",
    TY0705 KindDiffers: "An installed CustomResourceDefinition is older or newer than this command's, or is not served.",
    TY0706 RightsMissing: "You lack rights that trainyard's commands need.",
    TY0707 OperatorRightsMissing: "The operator's service account lacks rights that it needs.",
    TY0708 WebhookMissing: "No webhook checks TrainJobs, or it may be skipped.",
    TY0709 WebhookSilent: "A webhook that the API server must ask cannot answer.",
    TY0710 WebhookForeign: "Another webhook concerns the same kinds.",
    TY0711 ControllerMissing: "No controller of TrainJobs or JobSets runs.",
    TY0712 ControllerNotReady: "A controller is installed and does not work.",
    TY0713 ControllerRivals: "Two controllers work on the same kinds.",
    TY0714 RuntimeNotThere: "A runtime that a job names does not exist, or there is no runtime at all.",
    TY0715 GangScheduler: "A runtime schedules gangs with a scheduler that is not installed.",
    TY0716 JobStandsStill: "A TrainJob or its JobSet has not moved for longer than it should take.",
    TY0717 DeletionHeld: "An object is being deleted and does not go.",
    TY0718 PodsRefused: "The pods of a job are refused.",
    TY0719 PodsWaiting: "Pods of a job wait for a node or for their containers.",
    TY0720 LimitsNotEnforced: "The machine's kernel does not enforce limits of memory or processors.",
    ;
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An entry of the catalogue: a code with its name, meaning and page.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub code: &'static str,
    /// A word for it: of a reason, the one that `explain` prints.
    pub name: &'static str,
    /// One sentence.
    pub meaning: &'static str,
    pub page: &'static str,
}

/// All codes by block, with its title.
pub fn all() -> Vec<(&'static str, Vec<Entry>)> {
    let entry = |reason: Reason| Entry {
        code: reason.code(),
        name: reason.as_str(),
        meaning: reason.meaning(),
        page: reason.page(),
    };
    let reasons =
        Reason::groups().into_iter().map(|(title, reasons)| (title, reasons.into_iter().map(entry).collect()));
    own().into_iter().chain(reasons).collect()
}

/// All codes in the order of their numbers.
pub fn entries() -> impl Iterator<Item = Entry> {
    all().into_iter().flat_map(|(_, entries)| entries)
}

/// Whether a word is a code, or looks like one, rather than the name of a job: those have no capital letters.
pub fn is_code(word: &str) -> bool {
    word.starts_with("TY") || entries().any(|entry| entry.name == word)
}

/// All codes with their meanings, for completion.
pub fn meanings() -> impl Iterator<Item = (&'static str, &'static str)> {
    entries().map(|entry| (entry.code, entry.meaning))
}
