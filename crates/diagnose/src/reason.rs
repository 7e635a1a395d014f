//! The catalogue of reasons: a stable word for each, and what it means. docs/reasons.md has the same list.

use serde::Serialize;

macro_rules! reasons {
    ($($(#[doc = $title:literal])? $($reason:ident: $meaning:literal,)+;)+) => {
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

            /// What it means, in one sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $($(Self::$reason => $meaning,)+)+
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
    Complete: "The job has ended well.",
    Running: "The job is at work, and nothing speaks against it.",
    Starting: "Pods are being made or started, and nothing has gone wrong so far.",
    InitializerRunning: "The dataset or the model is being fetched; the nodes start after that.",
    Suspended: "Somebody suspended the job; it keeps its settings and has no pods.",
    QueuedByKueue: "Kueue holds the job back until its queue has room.",
    ManagedElsewhere: "`spec.managedBy` names another controller, so nothing is made here.",
    RetryWaiting: "An attempt failed; the next one starts after a pause.",
    ;
    /// The program ended by itself
    Exception: "A Python exception that nothing caught, of no kind that has a reason of its own.",
    AssertionFailed: "An `assert` did not hold.",
    SyntaxError: "Python could not read the script.",
    ShellSyntax: "A shell could not read a script.",
    PythonTooOld: "The script uses syntax or library calls that this Python does not have.",
    MissingModule: "A module that the script imports is not installed for the Python that ran it.",
    ImportFailed: "A module is there, but a name in it is not: versions of packages do not fit together.",
    MissingFile: "A file or folder does not exist where the process ran.",
    PermissionDenied: "The process may not read, write or run something.",
    ReadOnlyFileSystem: "The process wrote to a file system that is mounted read-only.",
    WrongKindOfPath: "A path is a folder where a file is needed, or the other way round.",
    FileExists: "A file or folder that is to be made is there already.",
    DamagedFile: "A file is damaged, cut off, or of another format than its reader expects.",
    EncodingError: "Text is in another encoding than the one it was read or written with.",
    NoTerminal: "The program asked a question, and nobody is there to answer.",
    NotPicklable: "An object cannot be handed to a worker process.",
    ProcessStart: "Processes were started in a way that does not work: a fork after CUDA, or a spawn without a main guard.",
    RecursionTooDeep: "A function called itself too often.",
    BadArguments: "The program refused its command-line arguments.",
    BadConfiguration: "A configuration file (JSON, YAML, TOML) could not be read, or its values are not valid.",
    ModuleHidden: "Modules import each other, or a file of the user's hides a library of the same name.",
    VersionMismatch: "A package is too old or too new for what is asked of it.",
    CompileFailed: "An extension or kernel could not be compiled where the process ran.",
    InstallFailed: "Packages could not be installed.",
    HangsAfterFailure: "The process has failed and does not end: a thread or child of it goes on.",
    MissingVariable: "An environment variable or key that the script needs is not set.",
    Interrupted: "The process was interrupted (Ctrl-C, SIGINT).",
    CommandNotFound: "The command, or one that a shell script calls, does not exist (exit code 127).",
    NotExecutable: "The command exists but cannot be run: no execute permission, or it is a folder (exit code 126).",
    ExecFormat: "The program was built for another processor, or is a script without `#!`.",
    ExitCode: "The process ended with an exit code that only the program itself can explain.",
    ;
    /// The program was ended by a signal
    SegmentationFault: "A native library crashed (SIGSEGV).",
    Aborted: "A native library gave up (SIGABRT).",
    BusError: "The process reached memory that could not be provided (SIGBUS).",
    IllegalInstruction: "A library was built for a newer processor (SIGILL).",
    FloatingPointException: "A native library divided by zero (SIGFPE).",
    Killed: "The process was killed (SIGKILL), by nobody who left a record.",
    CpuTimeLimit: "The process used more processor time than it may (SIGXCPU).",
    Signal: "The process was ended by a signal that has no reason of its own (SIGHUP, SIGPIPE, SIGALRM and so on).",
    Terminated: "The process was asked to end (SIGTERM).",
    ;
    /// Memory, disk and other limits
    OutOfMemory: "The process used more memory than it may, and the kernel ended it, or an allocation failed.",
    SharedMemoryTooSmall: "`/dev/shm` is too small for what the data loader's workers pass on.",
    DataLoaderWorkerDied: "A worker process of a data loader ended.",
    DataLoaderTimeout: "A data loader waited too long for its workers.",
    DiskFull: "No space is left on a disk or in a quota.",
    StorageError: "A disk or a network file system failed (input/output error, stale handle).",
    TooManyOpenFiles: "The process has as many open files as it may.",
    TooManyProcesses: "No further process or thread could be started.",
    ;
    /// GPUs
    CudaOutOfMemory: "The memory of a GPU is used up.",
    NoGpu: "The process sees no GPU, or its framework was built without support for one.",
    DriverTooOld: "The NVIDIA driver is older than the CUDA that the framework was built with.",
    InvalidDevice: "A process asked for a GPU by a number that does not exist: more processes than GPUs.",
    CudaAssertion: "A kernel on the GPU found a wrong value, mostly an index out of range.",
    CudaMismatch: "The framework's CUDA code does not fit this GPU, or CUDA libraries of several versions are mixed.",
    CudaError: "CUDA or one of its libraries reported an error.",
    GpuLost: "A GPU failed or fell off the bus.",
    NcclError: "NCCL could not connect or communicate.",
    NcclTimeout: "A collective operation of NCCL ran out of time: not all ranks took part.",
    DeviceUnsupported: "The device lacks a number type or instruction that was asked for (bf16, fp8, flash attention).",
    DeviceMismatch: "Tensors that are used together are on different devices.",
    ;
    /// Data and numbers
    ShapeMismatch: "Shapes or sizes of tensors do not fit.",
    TypeMismatch: "Types of tensors do not fit.",
    IndexOutOfRange: "An index, a label or a token lies beyond the size of what it is looked up in.",
    EmptyDataset: "The dataset has no samples.",
    GradientError: "A gradient cannot be computed: nothing asks for one, or what it needs is gone.",
    CheckpointMismatch: "A checkpoint does not fit the model.",
    CheckpointRefused: "PyTorch refuses a checkpoint that holds more than weights.",
    NanData: "The data holds values that are no number, or infinite.",
    NanLoss: "The loss is no number any more (NaN or infinite).",
    LossFlat: "The loss has not changed for a long time.",
    ;
    /// Libraries
    SharedLibraryMissing: "A shared library is not there.",
    GlibcTooOld: "A program or library needs a newer C library than the system has.",
    BinaryMismatch: "Compiled packages do not fit each other (undefined symbol, NumPy's ABI).",
    ;
    /// Processes that talk to each other
    AddressInUse: "A port is taken by another process.",
    NameNotResolved: "A host name could not be resolved.",
    ConnectionRefused: "Nothing listens at the address that the process connected to.",
    NetworkUnreachable: "There is no network route to an address, or connecting took too long.",
    RendezvousTimeout: "Not all processes met in time at the start.",
    RendezvousFailed: "The place where the processes meet could not be reached.",
    MasterAddressMissing: "The script was not started by a launcher: MASTER_ADDR or RANK is not set.",
    ProcessGroupMissing: "`torch.distributed` is used before `init_process_group`.",
    UnusedParameters: "DistributedDataParallel waits for gradients of parameters that the loss does not depend on.",
    GlooTimeout: "A collective operation of gloo ran out of time: not all ranks took part.",
    RanksOutOfStep: "Ranks called different collective operations, or with different shapes.",
    PeerLost: "The connection to another rank broke; that rank left no reason.",
    PeerFinished: "Another rank was done before: ranks have unequal numbers of steps.",
    ConnectionLost: "The other side closed a connection or pipe.",
    CoordinatorUnreachable: "The framework's coordinator or tracker (JAX, XGBoost, DeepSpeed) could not be reached.",
    MpiSlots: "mpirun was asked for more processes than the nodes have slots.",
    MpiSsh: "mpirun could not reach a node by ssh.",
    MpiDaemonLost: "mpirun lost a node, or could not start its daemon there.",
    MpiAsRoot: "mpirun refuses to run as root.",
    MpiProcessFailed: "A process that mpirun started failed, and left no other reason.",
    ;
    /// Downloads and certificates
    HubUnauthorized: "A hub asks for a token, or does not take the one it got (401).",
    GatedRepository: "The repository is gated: access must be asked for, or the token may not read it (403).",
    HubNotFound: "The repository, revision or file does not exist on the hub (404).",
    RateLimited: "The server refuses further requests for a while (429).",
    HubUnreachable: "The hub could not be reached from where the process ran.",
    ProxyFailed: "The proxy that a variable names does not answer or refuses.",
    TrackerLogin: "An experiment tracker (W&B and the like) has no key, or does not take it.",
    HttpError: "A server answered with an error.",
    CertificateNotValid: "A certificate has expired or is not valid yet: the certificate or the clock is wrong.",
    CertificateNotTrusted: "A certificate is signed by nobody whom the process trusts.",
    TlsFailed: "An encrypted connection could not be set up, for another reason than a certificate.",
    InitializerFailed: "The step that fetches the dataset or model failed.",
    ;
    /// Pods that are not made
    RuntimeMissing: "The runtime that the job names does not exist.",
    NoController: "Nothing was made of the job: no controller is at work.",
    QuotaExceeded: "A ResourceQuota refuses the pods.",
    AdmissionRefused: "The API server or a webhook refuses an object of the job.",
    LimitRange: "A LimitRange of the namespace refuses what the pods ask for.",
    PriorityClassMissing: "The pods' PriorityClass does not exist.",
    RuntimeClassMissing: "The pods' RuntimeClass does not exist.",
    PodSecurityRefused: "The namespace's Pod Security level refuses the pods.",
    WebhookDown: "A webhook that must be asked does not answer.",
    ServiceAccountMissing: "The pods' service account does not exist.",
    NamespaceEnding: "The namespace is being deleted.",
    StepWaiting: "A step waits until another one is ready or complete.",
    PodsMissing: "The JobSet is there, but no pods were made.",
    ;
    /// Pods that are not placed
    NeverFits: "A pod asks for more than any node has.",
    Busy: "The nodes have what a pod asks for, but it is in use.",
    NodeTainted: "The nodes have taints that the pods do not tolerate.",
    NodeSelector: "No node has the labels that the pods ask for.",
    PodsApart: "Rules on where pods may be beside each other (topology spread, affinity) leave no node.",
    NodesNotReady: "The nodes are not ready, or closed to new pods.",
    GangWaiting: "The pods start together, and not all of them are there or fit.",
    SchedulingGated: "A scheduling gate holds the pod back.",
    Unschedulable: "The scheduler finds no node for a pod.",
    VolumeMissing: "A PersistentVolumeClaim that a pod uses does not exist.",
    VolumeElsewhere: "A volume can be used in one zone or on one node alone, and the pod cannot go there.",
    VolumePending: "A PersistentVolumeClaim is not bound to a volume.",
    ;
    /// Containers that do not start
    ImagePull: "The image cannot be pulled.",
    ImagePlatform: "The image is not built for the node's processor.",
    RunsAsRoot: "The pod must not run as root, and its image does.",
    InvalidImage: "The image's name is not valid.",
    ConfigMissing: "A Secret, ConfigMap or key that the container uses does not exist.",
    MountFailed: "A volume cannot be mounted.",
    CannotStart: "The container's command cannot be started.",
    SandboxFailed: "The node could not set up the pod (network, sandbox).",
    CrashLoop: "A container fails again and again, for no other known reason.",
    ProbeFailed: "A liveness or startup probe failed, so the container was ended.",
    ;
    /// Ended from outside
    DeadlineExceeded: "The job was active for longer than `activeDeadlineSeconds` allows.",
    Evicted: "The node ended the pod because memory, disk or processes ran short.",
    Preempted: "The pod made room for one of higher priority, or was disrupted.",
    NodeLost: "The pod's node is gone or does not answer.",
    NodeShutdown: "The pod's node was shut down or drained.",
    PodDeleted: "Somebody deleted a pod of the job.",
    SupervisorLost: "The process that kept the pod on this machine was ended.",
    ;
    /// Running, but not getting on
    Stuck: "No rank has written a line, and no progress was reported, for ten minutes.",
    Slow: "The job gets on much more slowly than it did before.",
    ;
    /// Nothing is known
    Unknown: "The job failed, and neither pods, events nor logs say why.",
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
