"""OpenShift AI from Python: `openshift_ai_sdk.training` has MPIJobs."""
