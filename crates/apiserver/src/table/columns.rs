//! Which columns the server shows of built-in kinds.

/// One column as it is written below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ColumnDef {
    pub(super) name: &'static str,
    pub(super) ty: &'static str,
    pub(super) format: &'static str,
    pub(super) priority: i32,
}

const CREATED: &str = "Name,Created At:date";
const NAME_AND_AGE: &str = "Name,Age";
const BINDING: &str = "Name,Role,Age,Users*,Groups*,ServiceAccounts*";
const EVENT: &str = "Last Seen,Type,Reason,Object,Subobject*,Source*,Message,First Seen*,Count*,Name*";
const REPLICAS: &str = "Name,Desired:integer,Current:integer,Ready:integer,Age,Containers*,Images*,Selector*";

/// The columns of a kind: names, a type after a colon if it is not string, and a star for those shown only when wide.
fn list(group: &str, kind: &str) -> &'static str {
    match group {
        _ if kind == "Event" => EVENT,
        "" => core(kind),
        "apps" | "autoscaling" | "batch" | "policy" | "scheduling.k8s.io" => workloads(kind),
        _ => others(group, kind),
    }
}

fn core(kind: &str) -> &'static str {
    match kind {
        "ConfigMap" => "Name,Data,Age",
        "Endpoints" => "Name,Endpoints,Age",
        "Namespace" => "Name,Status,Age",
        "Node" => {
            "Name,Status,Roles,Age,Version,Internal-IP*,External-IP*,OS-Image*,Kernel-Version*,Container-Runtime*"
        }
        "PersistentVolumeClaim" => {
            "Name,Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age,VolumeMode*"
        }
        "PersistentVolume" => {
            "Name,Capacity,Access Modes,Reclaim Policy,Status,Claim,StorageClass,VolumeAttributesClass,Reason,Age,\
             VolumeMode*"
        }
        "Pod" => "Name,Ready,Status,Restarts,Age,IP*,Node*,Nominated Node*,Readiness Gates*",
        "PodTemplate" => "Name,Containers,Images,Pod Labels",
        "ReplicationController" => REPLICAS,
        "ResourceQuota" => "Name,Request,Limit,Age",
        "Secret" => "Name,Type,Data,Age",
        "Service" => "Name,Type,Cluster-IP,External-IP,Port(s),Age,Selector*",
        "ServiceAccount" => NAME_AND_AGE,
        _ => CREATED,
    }
}

fn workloads(kind: &str) -> &'static str {
    match kind {
        "ControllerRevision" => "Name,Controller,Revision,Age",
        "CronJob" => {
            "Name,Schedule,Timezone,Suspend:boolean,Active:integer,Last Schedule,Age,Containers*,Images*,Selector*"
        }
        "DaemonSet" => {
            "Name,Desired:integer,Current:integer,Ready:integer,Up-to-date:integer,Available:integer,Node Selector,Age,\
             Containers*,Images*,Selector*"
        }
        "Deployment" => "Name,Ready,Up-to-date,Available,Age,Containers*,Images*,Selector*",
        "HorizontalPodAutoscaler" => "Name,Reference,Targets,MinPods,MaxPods,Replicas,Age",
        "Job" => "Name,Status,Completions,Duration,Age,Containers*,Images*,Selector*",
        "PodDisruptionBudget" => "Name,Min Available,Max Unavailable,Allowed Disruptions:integer,Age",
        "PriorityClass" => "Name,Value:integer,Global-Default:boolean,Age,PreemptionPolicy",
        "ReplicaSet" => REPLICAS,
        "StatefulSet" => "Name,Ready,Age,Containers*,Images*",
        _ => CREATED,
    }
}

fn others(group: &str, kind: &str) -> &'static str {
    match (group, kind) {
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => "Name,Mutations:integer,ParamKind,Age",
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            "Name,Validations:integer,ParamKind,Age"
        }
        ("admissionregistration.k8s.io", kind) if kind.ends_with("Binding") => "Name,PolicyName,ParamRef,Age",
        ("admissionregistration.k8s.io", _) => "Name,Webhooks:integer,Age",
        ("apiregistration.k8s.io", "APIService") => "Name,Service,Available,Age",
        ("certificates.k8s.io", _) => "Name,Age,SignerName,Requestor,RequestedDuration,Condition",
        ("coordination.k8s.io", "Lease") => "Name,Holder,Age",
        ("discovery.k8s.io", "EndpointSlice") => "Name,AddressType,Ports,Endpoints,Age",
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => {
            "Name,PriorityLevel,MatchingPrecedence,DistinguisherMethod,Age,MissingPL"
        }
        ("flowcontrol.apiserver.k8s.io", _) => {
            "Name,Type,NominalConcurrencyShares,Queues,HandSize,QueueLengthLimit,Age"
        }
        ("networking.k8s.io", "IPAddress") => "Name,ParentRef",
        ("networking.k8s.io", "Ingress") => "Name,Class,Hosts,Address,Ports,Age",
        ("networking.k8s.io", "IngressClass") => "Name,Controller,Parameters,Age",
        ("networking.k8s.io", "NetworkPolicy") => "Name,Pod-Selector,Age",
        ("networking.k8s.io", "ServiceCIDR") => "Name,CIDRs,Age",
        ("node.k8s.io", "RuntimeClass") => "Name,Handler,Age",
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => BINDING,
        ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate") => NAME_AND_AGE,
        ("resource.k8s.io", "ResourceClaim") => "Name,State,Age",
        ("resource.k8s.io", "ResourceSlice") => "Name,Node,Driver,Pool,Age",
        ("storage.k8s.io", "CSIDriver") => {
            "Name,AttachRequired:boolean,PodInfoOnMount:boolean,StorageCapacity:boolean,TokenRequests,\
             RequiresRepublish:boolean,Modes,Age"
        }
        ("storage.k8s.io", "CSINode") => "Name,Drivers:integer,Age",
        ("storage.k8s.io", "StorageClass") => {
            "Name,Provisioner,ReclaimPolicy,VolumeBindingMode,AllowVolumeExpansion,Age"
        }
        ("storage.k8s.io", "VolumeAttachment") => "Name,Attacher,PV,Node,Attached:boolean,Age",
        ("storage.k8s.io", "VolumeAttributesClass") => "Name,DriverName,Age",
        _ => CREATED,
    }
}

pub(super) fn columns(group: &str, kind: &str) -> Vec<ColumnDef> {
    list(group, kind)
        .split(',')
        .map(|word| {
            let (word, priority) = match word.strip_suffix('*') {
                Some(word) => (word, 1),
                None => (word, 0),
            };
            let (name, ty) = word.split_once(':').unwrap_or((word, "string"));
            let format = if matches!(name, "Name" | "Attacher") { "name" } else { "" };
            ColumnDef { name, ty, format, priority }
        })
        .collect()
}

/// A few words on a column, for clients that show them.
pub(super) fn describe(name: &str) -> String {
    match name {
        "Name" => "name of the object".into(),
        "Age" => "time since the object was created".into(),
        "Created At" => "when the object was created".into(),
        other => other.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_columns() {
        let pod = columns("", "Pod");
        assert_eq!(pod[0], ColumnDef { name: "Name", ty: "string", format: "name", priority: 0 });
        assert_eq!(pod[5], ColumnDef { name: "IP", ty: "string", format: "", priority: 1 });
        let set = columns("apps", "ReplicaSet");
        assert_eq!(set[1], ColumnDef { name: "Desired", ty: "integer", format: "", priority: 0 });
        let other = columns("", "LimitRange");
        assert_eq!(other[1], ColumnDef { name: "Created At", ty: "date", format: "", priority: 0 });
    }
}
