//! The catalogue of reasons: a stable word and a stable code for each, what it means, and its page (docs/errors).
//!
//! A reason keeps its word and its code for ever, and none is given out a second time: programs and people look them up. A new
//! reason takes the next free number of its group.

use serde::Serialize;

macro_rules! reasons {
    ($($(#[doc = $title:literal])? $($code:ident $reason:ident: $meaning:literal,)+;)+) => {
        /// Why a job is in its state.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum Reason {
            $($(#[doc = $meaning] $reason,)+)+
        }

        impl Reason {
            /// The stable word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($(Self::$reason => stringify!($reason),)+)+
                }
            }

            /// The stable code: `TY` and four digits.
            pub fn code(self) -> &'static str {
                match self {
                    $($(Self::$reason => stringify!($code),)+)+
                }
            }

            /// What it means, in one sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $($(Self::$reason => $meaning,)+)+
                }
            }

            /// Its page, as docs/errors has it: a reason without one does not compile.
            pub fn page(self) -> &'static str {
                match self {
                    $($(Self::$reason => include_str!(concat!("../../../docs/errors/", stringify!($code), ".md")),)+)+
                }
            }

            /// All reasons by group, in the order of the documentation.
            pub fn groups() -> Vec<(&'static str, Vec<Self>)> {
                vec![$((concat!($($title)?).trim_ascii(), vec![$(Self::$reason,)+]),)+]
            }
        }
    };
}

reasons! {
    /// Nothing is wrong
    TY1001 Complete: "The job has ended well.",
    TY1002 Running: "The job is running, and nothing points to a problem.",
    TY1003 Starting: "Pods are being made or started, and nothing has gone wrong so far.",
    TY1004 InitializerRunning: "The dataset or the model is being fetched; the nodes start after that.",
    TY1005 Suspended: "Somebody suspended the job; it keeps its settings and has no pods.",
    TY1006 QueuedByKueue: "Kueue holds the job back until its queue has room.",
    TY1007 ManagedElsewhere: "`spec.managedBy` names another controller, so nothing is created here.",
    TY1008 RetryWaiting: "An attempt failed; the next one starts after a pause.",
    ;
    /// The program ended by itself
    TY1101 Exception: "The script did not catch a Python exception, and the exception has no reason of its own.",
    TY1102 AssertionFailed: "An `assert` did not hold.",
    TY1103 SyntaxError: "Python could not parse the script.",
    TY1104 ShellSyntax: "A shell could not parse a script.",
    TY1105 PythonTooOld: "The script uses syntax or library calls that this Python does not have.",
    TY1106 MissingModule: "A module that the script imports is not installed for the Python that ran it.",
    TY1107 ImportFailed: "A module is there, but a name in it is not: versions of packages do not fit together.",
    TY1108 MissingFile: "A file or folder does not exist where the process ran.",
    TY1109 PermissionDenied: "The process may not read, write or run something.",
    TY1110 ReadOnlyFileSystem: "The process wrote to a file system that is mounted read-only.",
    TY1111 WrongKindOfPath: "A path is a folder where a file is needed, or the other way round.",
    TY1112 FileExists: "A file or folder that is to be made is there already.",
    TY1113 DamagedFile: "A file is damaged, cut off, or of another format than its reader expects.",
    TY1114 EncodingError: "Text is in another encoding than the one it was read or written with.",
    TY1115 NoTerminal: "The program asked a question, and a job has no terminal to answer it.",
    TY1116 NotPicklable: "An object cannot be handed to a worker process.",
    TY1117 ProcessStart: "Processes were started in a way that does not work: a fork after CUDA, or a spawn without a main guard.",
    TY1118 RecursionTooDeep: "A function called itself too often.",
    TY1119 BadArguments: "The program refused its command-line arguments.",
    TY1120 BadConfiguration: "A configuration file (JSON, YAML, TOML) could not be read, or its values are not valid.",
    TY1121 ModuleHidden: "Modules import each other, or a file of the user's hides a library of the same name.",
    TY1122 VersionMismatch: "A package is too old or too new for what is asked of it.",
    TY1123 CompileFailed: "An extension or kernel could not be compiled where the process ran.",
    TY1124 InstallFailed: "Packages could not be installed.",
    TY1125 HangsAfterFailure: "The process has failed and does not end, because a thread or child process still runs.",
    TY1126 MissingVariable: "An environment variable or key that the script needs is not set.",
    TY1127 Interrupted: "The process was interrupted (Ctrl-C, SIGINT).",
    TY1128 CommandNotFound: "The command, or one that a shell script calls, does not exist (exit code 127).",
    TY1129 NotExecutable: "The command exists but cannot be run: no execute permission, or it is a folder (exit code 126).",
    TY1130 ExecFormat: "The program was built for another processor, or is a script without `#!`.",
    TY1131 ExitCode: "The process ended with an exit code that only the program itself can explain.",
    ;
    /// The program was ended by a signal
    TY1201 SegmentationFault: "A native library crashed (SIGSEGV).",
    TY1202 Aborted: "A native library gave up (SIGABRT).",
    TY1203 BusError: "The process reached memory that could not be provided (SIGBUS).",
    TY1204 IllegalInstruction: "A library was built for a newer processor (SIGILL).",
    TY1205 FloatingPointException: "A native library divided by zero (SIGFPE).",
    TY1206 Killed: "The process was killed (SIGKILL), and no record says by whom.",
    TY1207 CpuTimeLimit: "The process used more processor time than it may (SIGXCPU).",
    TY1208 Signal: "The process was ended by a signal that has no reason of its own (SIGHUP, SIGPIPE, SIGALRM and so on).",
    TY1209 Terminated: "The process was asked to end (SIGTERM).",
    ;
    /// Memory, disk and other limits
    TY1301 OutOfMemory: "The process used more memory than it may, and the kernel ended it, or an allocation failed.",
    TY1302 SharedMemoryTooSmall: "`/dev/shm` is too small for what the data loader's workers pass on.",
    TY1303 DataLoaderWorkerDied: "A worker process of a data loader ended.",
    TY1304 DataLoaderTimeout: "A data loader waited too long for its workers.",
    TY1305 DiskFull: "No space is left on a disk or in a quota.",
    TY1306 StorageError: "A disk or a network file system failed (input/output error, stale handle).",
    TY1307 TooManyOpenFiles: "The process has as many open files as it may.",
    TY1308 TooManyProcesses: "No further process or thread could be started.",
    ;
    /// GPUs
    TY1401 CudaOutOfMemory: "The memory of a GPU is used up.",
    TY1402 NoGpu: "The process sees no GPU, or its framework was built without support for one.",
    TY1403 DriverTooOld: "The NVIDIA driver is older than the CUDA that the framework was built with.",
    TY1404 InvalidDevice: "A process asked for a GPU number that does not exist: there are more processes than GPUs.",
    TY1405 CudaAssertion: "A kernel on the GPU found a wrong value, mostly an index out of range.",
    TY1406 CudaMismatch: "The framework's CUDA code does not fit this GPU, or CUDA libraries of several versions are mixed.",
    TY1407 CudaError: "CUDA or one of its libraries reported an error.",
    TY1408 GpuLost: "A GPU failed or fell off the bus.",
    TY1409 NcclError: "NCCL could not connect or communicate.",
    TY1410 NcclTimeout: "A collective operation of NCCL ran out of time: not all ranks took part.",
    TY1411 DeviceUnsupported: "The device lacks a number type or instruction that was asked for (bf16, fp8, flash attention).",
    TY1412 DeviceMismatch: "Tensors that are used together are on different devices.",
    ;
    /// Data and numbers
    TY1501 ShapeMismatch: "Shapes or sizes of tensors do not fit.",
    TY1502 TypeMismatch: "Types of tensors do not fit.",
    TY1503 IndexOutOfRange: "An index, a label or a token lies beyond the size of what it is looked up in.",
    TY1504 EmptyDataset: "The dataset has no samples.",
    TY1505 GradientError: "A gradient cannot be computed: nothing asks for one, or what it needs is gone.",
    TY1506 CheckpointMismatch: "A checkpoint does not fit the model.",
    TY1507 CheckpointRefused: "PyTorch refuses a checkpoint that holds more than weights.",
    TY1508 NanData: "The data holds values that are NaN or infinite.",
    TY1509 NanLoss: "The loss is not a number any more (NaN or infinite).",
    TY1510 LossFlat: "The loss has not changed for a long time.",
    ;
    /// Libraries
    TY1601 SharedLibraryMissing: "A shared library is not there.",
    TY1602 GlibcTooOld: "A program or library needs a newer C library than the system has.",
    TY1603 BinaryMismatch: "Compiled packages do not fit each other (undefined symbol, NumPy's ABI).",
    ;
    /// Processes that talk to each other
    TY1701 AddressInUse: "A port is taken by another process.",
    TY1702 NameNotResolved: "A host name could not be resolved.",
    TY1703 ConnectionRefused: "Nothing listens at the address that the process connected to.",
    TY1704 NetworkUnreachable: "There is no network route to an address, or connecting took too long.",
    TY1705 RendezvousTimeout: "Not all processes met in time at the start.",
    TY1706 RendezvousFailed: "The place where the processes meet could not be reached.",
    TY1707 MasterAddressMissing: "The script was not started by a launcher: MASTER_ADDR or RANK is not set.",
    TY1708 ProcessGroupMissing: "`torch.distributed` is used before `init_process_group`.",
    TY1709 UnusedParameters: "DistributedDataParallel waits for gradients of parameters that the loss does not depend on.",
    TY1710 GlooTimeout: "A collective operation of gloo ran out of time: not all ranks took part.",
    TY1711 RanksOutOfStep: "Ranks called different collective operations, or with different shapes.",
    TY1712 PeerLost: "The connection to another rank broke; that rank left no reason.",
    TY1713 PeerFinished: "Another rank was done before: ranks have unequal numbers of steps.",
    TY1714 ConnectionLost: "The other side closed a connection or pipe.",
    TY1715 CoordinatorUnreachable: "The framework's coordinator or tracker (JAX, XGBoost, DeepSpeed) could not be reached.",
    TY1716 MpiSlots: "mpirun was asked for more processes than the nodes have slots.",
    TY1717 MpiSsh: "mpirun could not reach a node by ssh.",
    TY1718 MpiDaemonLost: "mpirun lost a node, or could not start its daemon there.",
    TY1719 MpiAsRoot: "mpirun refuses to run as root.",
    TY1720 MpiProcessFailed: "A process that mpirun started failed, and left no other reason.",
    TY1721 WorkersNotReachable: "An MPIJob's launcher waited for its workers in vain.",
    TY1722 WorkersAwaited: "An MPIJob's launcher waits for its workers.",
    TY1723 WorkersNotUsed: "An MPIJob ended well, but mpirun started no process in a worker: all ranks ran in the launcher.",
    ;
    /// Downloads and certificates
    TY1801 HubUnauthorized: "A hub asks for a token, or does not accept the one it got (401).",
    TY1802 GatedRepository: "The repository is gated: access must be asked for, or the token may not read it (403).",
    TY1803 HubNotFound: "The repository, revision or file does not exist on the hub (404).",
    TY1804 RateLimited: "The server refuses further requests for a while (429).",
    TY1805 HubUnreachable: "The hub could not be reached from where the process ran.",
    TY1806 ProxyFailed: "The proxy that a variable names does not answer, or refuses the connection.",
    TY1807 TrackerLogin: "An experiment tracker (such as W&B) has no key, or does not accept it.",
    TY1808 HttpError: "A server answered with an error.",
    TY1809 CertificateNotValid: "A certificate has expired or is not valid yet: the certificate or the clock is wrong.",
    TY1810 CertificateNotTrusted: "A certificate is signed by an authority that the process does not trust.",
    TY1811 TlsFailed: "An encrypted connection could not be set up, for another reason than a certificate.",
    TY1812 InitializerFailed: "The step that fetches the dataset or model failed.",
    ;
    /// Pods that are not made
    TY1901 RuntimeMissing: "The runtime that the job names does not exist.",
    TY1902 NoController: "Nothing was created for the job: no controller is at work.",
    TY1903 QuotaExceeded: "A ResourceQuota refuses the pods.",
    TY1904 AdmissionRefused: "The API server or a webhook refuses an object of the job.",
    TY1905 LimitRange: "A LimitRange of the namespace refuses what the pods ask for.",
    TY1906 PriorityClassMissing: "The pods' PriorityClass does not exist.",
    TY1907 RuntimeClassMissing: "The pods' RuntimeClass does not exist.",
    TY1908 PodSecurityRefused: "The namespace's Pod Security level refuses the pods.",
    TY1909 WebhookDown: "A webhook that must be asked does not answer.",
    TY1910 ServiceAccountMissing: "The pods' service account does not exist.",
    TY1911 NamespaceEnding: "The namespace is being deleted.",
    TY1912 StepWaiting: "A step waits until another one is ready or complete.",
    TY1913 PodsMissing: "The JobSet is there, but no pods were made.",
    TY1914 MpiJobInvalid: "The MPIJob's spec cannot be run, so nothing is made for it.",
    TY1915 ChildNameTaken: "An object of the name that a child of the MPIJob is to have exists, and is not the MPIJob's.",
    ;
    /// Pods that are not placed
    TY2001 NeverFits: "A pod asks for more than any node has.",
    TY2002 Busy: "The nodes have what a pod asks for, but it is in use.",
    TY2003 NodeTainted: "The nodes have taints that the pods do not tolerate.",
    TY2004 NodeSelector: "No node has the labels that the pods ask for.",
    TY2005 PodsApart: "Rules on where pods may be beside each other (topology spread, affinity) leave no node.",
    TY2006 NodesNotReady: "The nodes are not ready, or closed to new pods.",
    TY2007 GangWaiting: "The pods start together, and not all of them are there or fit.",
    TY2008 SchedulingGated: "A scheduling gate holds the pod back.",
    TY2009 Unschedulable: "The scheduler finds no node for a pod.",
    TY2010 VolumeMissing: "A PersistentVolumeClaim that a pod uses does not exist.",
    TY2011 VolumeElsewhere: "A volume can be used in one zone or on one node alone, and the pod cannot go there.",
    TY2012 VolumePending: "A PersistentVolumeClaim is not bound to a volume.",
    TY2013 EarlierRunEnding: "Pods of the job's earlier run are still ending; the next run starts after them.",
    ;
    /// Containers that do not start
    TY2101 ImagePull: "The image cannot be pulled.",
    TY2102 ImagePlatform: "The image is not built for the node's processor.",
    TY2103 RunsAsRoot: "The pod must not run as root, and its image does.",
    TY2104 InvalidImage: "The image's name is not valid.",
    TY2105 ConfigMissing: "A Secret, ConfigMap or key that the container uses does not exist.",
    TY2106 MountFailed: "A volume cannot be mounted.",
    TY2107 CannotStart: "The container's command cannot be started.",
    TY2108 SandboxFailed: "The node could not set up the pod (network, sandbox).",
    TY2109 CrashLoop: "A container fails again and again, for no other known reason.",
    TY2110 ProbeFailed: "A liveness or startup probe failed, so the container was ended.",
    TY2111 PortsTaken: "All ports that the node has for jobs are taken.",
    ;
    /// Ended from outside
    TY2201 DeadlineExceeded: "The job was active for longer than `activeDeadlineSeconds` allows.",
    TY2202 Evicted: "The node ended the pod because memory, disk or processes ran short.",
    TY2203 Preempted: "The pod made room for one of higher priority, or was disrupted.",
    TY2204 NodeLost: "The pod's node is gone or does not answer.",
    TY2205 NodeShutdown: "The pod's node was shut down or drained.",
    TY2206 PodDeleted: "Somebody deleted a pod of the job.",
    TY2207 SupervisorLost: "The process that kept the pod on this machine was ended.",
    ;
    /// Running without progress
    TY2301 Stuck: "No rank has written a line, and no progress was reported, for ten minutes; or for 30 seconds in which no rank used a processor.",
    TY2302 Slow: "The job makes much slower progress than before.",
    ;
    /// Unknown
    TY2401 Unknown: "The job failed, and neither pods, events nor logs say why.",
    ;
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Pending,
    Restarting,
    Failed,
    Slow,
    Stuck,
    Running,
    Suspended,
    Complete,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Restarting => "restarting",
            Self::Failed => "failed",
            Self::Slow => "slow",
            Self::Stuck => "stuck",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Complete => "complete",
        }
    }
}
