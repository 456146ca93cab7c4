//! What AWS says when it refuses, and who has to move then.
//!
//! Almost every refusal is a 400, so the code decides and never the status. Codes are looked up in one table.

use super::xml::Element;
use crate::failure::{Class, Failure};

/// A refusal in AWS' own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
    /// What was asked: some codes mean one thing of one call and another of another.
    asked: &'static str,
    /// It was asked with temporary keys.
    temporary: bool,
}

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallError {
    /// It was answered with a refusal.
    Refused(Refusal),
    /// There was no answer, or no credentials.
    Failed(Failure),
}

/// Codes, and what they mean.
struct Meaning {
    codes: &'static [&'static str],
    class: Class,
    reason: &'static str,
    remedy: &'static str,
}

const fn meaning(
    codes: &'static [&'static str],
    class: Class,
    reason: &'static str,
    remedy: &'static str,
) -> Meaning {
    Meaning { codes, class, reason, remedy }
}

const AGAIN: &str = "it is tried again; when it lasts, look at the health page of AWS";
const RIGHTS: &str =
    "give the user or role the missing permission; docs/contracts/aws.md lists all that are needed";
const KEYS: &str = "check accessKeyID, secretAccessKey and sessionToken in the credentials";
/// Reason and remedy.
const EXPIRED: (&str, &str) =
    ("CredentialsExpired", "give new temporary credentials, or a role or profile that can be renewed");
const NO_GROUP: (&str, &str) =
    ("NoSuchSecurityGroup", "name security groups of the VPC in the ProviderConfig");
const RAISE: &str = "remove what is not used, or ask AWS to raise the quota (Service Quotas)";
const WAIT: &str = "it is tried again once what uses it is gone";

const MEANINGS: &[Meaning] = &[
    meaning(
        &[
            "Throttling",
            "ThrottlingException",
            "ThrottledException",
            "RequestThrottled",
            "RequestThrottledException",
            "RequestLimitExceeded",
            "EC2ThrottledException",
            "TooManyRequestsException",
            "PriorRequestNotComplete",
            "SlowDown",
        ],
        Class::Throttled,
        "TooManyCalls",
        "it is tried again later; other users of the account use the same quota of calls",
    ),
    meaning(
        // Of a call with temporary keys, the latter speaks of these.
        &["RequestTimeTooSkewed", "RequestExpired"],
        Class::Auth,
        "ClockWrong",
        "set this computer's clock right",
    ),
    meaning(
        &["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"],
        Class::Auth,
        EXPIRED.0,
        EXPIRED.1,
    ),
    meaning(
        &[
            "AuthFailure",
            "InvalidClientTokenId",
            "UnrecognizedClientException",
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "IncompleteSignature",
            "MissingAuthenticationToken",
            "MissingAuthenticationTokenException",
        ],
        Class::Auth,
        "LoginFailed",
        KEYS,
    ),
    meaning(
        &[
            "AccessDenied",
            "AccessDeniedException",
            "UnauthorizedOperation",
            "UnauthorizedAccess",
            "NotAuthorized",
        ],
        Class::Auth,
        "PermissionDenied",
        RIGHTS,
    ),
    meaning(
        &["OptInRequired", "PendingVerification", "Blocked"],
        Class::Auth,
        "AccountNotUsable",
        "finish the sign-up of the account for this service and region",
    ),
    meaning(
        &[
            "TooManyLoadBalancers",
            "TooManyTargetGroups",
            "TooManyListeners",
            "TooManyTargets",
            "TooManyRegistrationsForTargetId",
            "TargetGroupAssociationLimit",
            "TooManyUniqueTargetGroupsPerLoadBalancer",
            "TooManyTags",
            "TooManyActions",
            "TagLimitExceeded",
            "RulesPerSecurityGroupLimitExceeded",
            "SecurityGroupLimitExceeded",
            "SecurityGroupsPerInterfaceLimitExceeded",
            "ResourceLimitExceeded",
            "InstanceLimitExceeded",
            "VcpuLimitExceeded",
            "VolumeLimitExceeded",
            "MaxIOPSLimitExceeded",
            "AddressLimitExceeded",
        ],
        Class::Quota,
        "QuotaExceeded",
        RAISE,
    ),
    meaning(
        &["InsufficientFreeAddressesInSubnet", "NetworkInterfaceLimitExceeded"],
        Class::Quota,
        "NoFreeAddress",
        "free addresses in that subnet, or name larger ones in the ProviderConfig",
    ),
    meaning(
        &["InsufficientInstanceCapacity", "InsufficientHostCapacity", "Server.InsufficientInstanceCapacity"],
        Class::Quota,
        "NoCapacity",
        "AWS has no such machine in that zone now: it is tried again; another instance type or zone may have some",
    ),
    meaning(
        &["ResourceInUse", "DependencyViolation", "InvalidGroup.InUse", "VolumeInUse"],
        Class::Retryable,
        "StillInUse",
        WAIT,
    ),
    meaning(
        &["IncorrectInstanceState", "IncorrectState", "InvalidTarget", "CapacityReservationPending"],
        Class::Retryable,
        "NotYet",
        "it is tried again once the machine is in the right state",
    ),
    meaning(
        &[
            "LoadBalancerNotFound",
            "TargetGroupNotFound",
            "ListenerNotFound",
            "InvalidGroup.NotFound",
            "InvalidInstanceID.NotFound",
            "InvalidVolume.NotFound",
        ],
        Class::Retryable,
        "Vanished",
        "it is looked at again; find out who deletes it",
    ),
    meaning(
        &["InvalidSubnetID.NotFound", "SubnetNotFound", "InvalidSubnet", "InvalidSubnet.Conflict"],
        Class::InvalidConfig,
        "SubnetUnusable",
        "name subnets of this region and account, one in each zone, in the ProviderConfig",
    ),
    meaning(
        &["InvalidVpcID.NotFound"],
        Class::InvalidConfig,
        "NoSuchVpc",
        "name a VPC of this region and account in the ProviderConfig",
    ),
    meaning(
        &["InvalidAMIID.NotFound", "InvalidAMIID.Malformed", "InvalidAMIID.Unavailable"],
        Class::InvalidConfig,
        "NoSuchImage",
        "name an image that is there in this region; AMI ids differ from region to region",
    ),
    meaning(
        &["InvalidSecurityGroup", "InvalidSecurityGroupID.NotFound", "InvalidGroupId.Malformed"],
        Class::InvalidConfig,
        NO_GROUP.0,
        NO_GROUP.1,
    ),
    meaning(
        &[
            "InvalidConfigurationRequest",
            "InvalidScheme",
            "IncompatibleProtocols",
            "UnsupportedProtocol",
            "AvailabilityZoneNotSupported",
            "ValidationError",
            "Unsupported",
            "UnsupportedOperation",
            "InvalidParameter",
            "InvalidParameterValue",
            "InvalidParameterCombination",
            "MissingParameter",
            "InvalidBlockDeviceMapping",
            "InstanceTypeNotSupported",
        ],
        Class::InvalidConfig,
        "Refused",
        "correct what AWS names",
    ),
    meaning(
        // Often by an interface that is still going away.
        &["InvalidIPAddress.InUse"],
        Class::Retryable,
        "AddressInUse",
        "it is tried again; free the address, or choose another",
    ),
    meaning(
        &["OperationNotPermitted"],
        Class::InvalidConfig,
        "Protected",
        "it is protected: switch the protection off where it was switched on",
    ),
];

impl Refusal {
    /// Reads a refusal. EC2 wraps the error in `Errors`, the others don't.
    pub(crate) fn read(status: u16, text: &str) -> Self {
        let root = Element::parse(text).unwrap_or_default();
        let error = root.at("Errors/Error").or_else(|| root.at("Error"));
        let part = |name: &str| error.map(|error| error.string(name)).unwrap_or_default();
        let code = part("Code");
        let message = presentable(&code, &part("Message"));
        Self { status, code, message, asked: "", temporary: false }
    }

    /// The same of a service that speaks JSON. A name may stand before the code.
    pub(crate) fn of_json(status: u16, body: &serde_json::Value) -> Self {
        let text = |key: &str| body.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
        let code = text("__type").rsplit('#').next().unwrap_or_default().to_owned();
        let message = presentable(&code, text("message"));
        Self { status, code, message, asked: "", temporary: false }
    }

    /// The same, of a call of which it is known what was asked, and whether with temporary keys.
    pub(crate) fn of(self, asked: &'static str, temporary: bool) -> Self {
        Self { asked, temporary, ..self }
    }

    pub(crate) fn is(&self, codes: &[&str]) -> bool {
        codes.contains(&self.code.as_str())
    }

    /// The thing that was asked for is not there.
    pub(crate) fn not_found(&self) -> bool {
        self.is(&[
            "LoadBalancerNotFound",
            "TargetGroupNotFound",
            "ListenerNotFound",
            "InvalidGroup.NotFound",
            "InvalidInstanceID.NotFound",
            "InvalidVolume.NotFound",
            "InvalidPermission.NotFound",
        ])
    }

    /// It is there already: ours, when an answer was lost or a look was behind; the next look tells.
    pub(crate) fn is_there_already(&self) -> bool {
        self.is(&[
            "DuplicateLoadBalancerName",
            "DuplicateTargetGroupName",
            "DuplicateListener",
            "InvalidGroup.Duplicate",
            "InvalidPermission.Duplicate",
            "IdempotentParameterMismatch",
        ])
    }

    /// A security group that EC2 has shown is not known to the load balancing service yet.
    pub(crate) fn group_not_known(&self) -> bool {
        let named = self.code == "InvalidConfigurationRequest" && self.message.contains("sg-");
        named
            || self.is(&["InvalidSecurityGroup", "InvalidGroup.NotFound", "InvalidSecurityGroupID.NotFound"])
    }

    /// Something else has to happen first.
    pub(crate) fn has_to_wait(&self) -> bool {
        self.is(&[
            "ResourceInUse",
            "DependencyViolation",
            "InvalidGroup.InUse",
            "VolumeInUse",
            "InvalidTarget",
            "IncorrectInstanceState",
            "IncorrectState",
        ])
    }

    /// Temporary credentials are over.
    pub(crate) fn expired(&self) -> bool {
        self.is(&["ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"])
    }

    /// The failure that this refusal is. `what` names the operation and its object.
    pub(crate) fn failure(&self, what: &str) -> Failure {
        let (class, reason, remedy) = self.classify();
        let words = match (self.code.is_empty(), self.message.is_empty()) {
            (true, _) => format!("status {}", self.status),
            (false, true) => self.code.clone(),
            (false, false) => format!("{}: {}", self.code, self.message),
        };
        Failure::new(class, reason, format!("{what}: AWS says: {words}"), remedy)
    }

    fn classify(&self) -> (Class, &'static str, &'static str) {
        // A subnet without room has the same code as one that is not there.
        let words = self.message.to_lowercase();
        let full =
            ["free ip address", "available addresses", "ip space"].iter().any(|part| words.contains(part));
        if self.code == "InvalidSubnet" && full {
            return (Class::Quota, "NoFreeAddress", "free addresses in that subnet, or name larger ones");
        }
        match self.code.as_str() {
            "RequestExpired" if self.temporary => return (Class::Auth, EXPIRED.0, EXPIRED.1),
            // The groups of a machine are the user's.
            "InvalidGroup.NotFound" if self.asked == "RunInstances" => {
                return (Class::InvalidConfig, NO_GROUP.0, NO_GROUP.1);
            }
            "OperationNotPermitted" if self.asked.starts_with("Create") => {
                let remedy = "ask AWS to open this service for the account (Support Center)";
                return (Class::Auth, "AccountNotUsable", remedy);
            }
            _ => {}
        }
        let known = MEANINGS.iter().find(|meaning| meaning.codes.contains(&self.code.as_str()));
        if let Some(meaning) = known {
            return (meaning.class, meaning.reason, meaning.remedy);
        }
        match self.status {
            401 | 403 => (Class::Auth, "PermissionDenied", RIGHTS),
            429 => (Class::Throttled, "TooManyCalls", AGAIN),
            // A code of whole families: InvalidSubnetID.Malformed, InvalidKeyPair.NotFound ...
            400 if self.code.starts_with("Invalid") => {
                (Class::InvalidConfig, "Refused", "correct what AWS names")
            }
            _ => (Class::Retryable, "Unavailable", AGAIN),
        }
    }
}

/// What AWS says, without what must not be written down: a refused signature is answered with the canonical request, which
/// holds the session token, and a refused permission with a long cipher.
fn presentable(code: &str, message: &str) -> String {
    let first =
        if code == "SignatureDoesNotMatch" { message.lines().next().unwrap_or_default() } else { message };
    let cut = first.split(" Encoded authorization failure message").next().unwrap_or_default();
    let cut = cut.split("The Canonical String").next().unwrap_or_default();
    cut.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl CallError {
    /// The failure that it is. `what` names the operation and its object.
    pub(crate) fn failure(self, what: &str) -> Failure {
        match self {
            CallError::Refused(refusal) => refusal.failure(what),
            CallError::Failed(failure) => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, code: &str, message: &str) -> Refusal {
        let text = format!(
            "<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
        );
        Refusal::read(status, &text)
    }

    #[test]
    fn both_forms_of_errors_are_read() {
        let ec2 = "<Response><Errors><Error><Code>AuthFailure</Code><Message>no</Message></Error></Errors></Response>";
        assert_eq!(Refusal::read(401, ec2).code, "AuthFailure");
        assert_eq!(refusal(400, "LoadBalancerNotFound", "x").code, "LoadBalancerNotFound");
        assert_eq!(Refusal::read(502, "<html>").classify().0, Class::Retryable);
        let json = serde_json::json!({"__type": "com.amazonaws#AccessDeniedException", "message": "no"});
        let refusal = Refusal::of_json(400, &json);
        assert_eq!((refusal.code.as_str(), refusal.classify().0), ("AccessDeniedException", Class::Auth));
    }

    /// Everything is a 400: the code decides.
    #[test]
    fn classes_follow_codes() {
        let cases = [
            ("Throttling", 400, Class::Throttled),
            ("RequestLimitExceeded", 503, Class::Throttled),
            ("TooManyLoadBalancers", 400, Class::Quota),
            ("VcpuLimitExceeded", 400, Class::Quota),
            ("ExpiredToken", 400, Class::Auth),
            ("UnauthorizedOperation", 403, Class::Auth),
            ("DependencyViolation", 400, Class::Retryable),
            ("InvalidAMIID.NotFound", 400, Class::InvalidConfig),
            ("InvalidParameterValue", 400, Class::InvalidConfig),
            ("InternalError", 500, Class::Retryable),
            ("SomethingNew", 400, Class::Retryable),
            ("VolumeInUse", 400, Class::Retryable),
            ("ServiceUnavailable", 503, Class::Retryable),
        ];
        for (code, status, class) in cases {
            assert_eq!(refusal(status, code, "").classify().0, class, "{code}");
        }
        for words in
            ["Not enough free IP addresses in the subnet", "The subnet is out of available addresses"]
        {
            assert_eq!(refusal(400, "InvalidSubnet", words).failure("x").reason, "NoFreeAddress");
        }
        assert_eq!(refusal(400, "InvalidSubnet", "one zone only").failure("x").reason, "SubnetUnusable");
    }

    /// One code, and another remedy for another call.
    #[test]
    fn what_was_asked_decides_where_a_code_has_two_meanings() {
        let cases = [
            ("RequestExpired", "DescribeInstances", true, Class::Auth, "CredentialsExpired"),
            ("RequestExpired", "DescribeInstances", false, Class::Auth, "ClockWrong"),
            ("InvalidGroup.NotFound", "RunInstances", false, Class::InvalidConfig, "NoSuchSecurityGroup"),
            ("InvalidGroup.NotFound", "DeleteSecurityGroup", false, Class::Retryable, "Vanished"),
            ("OperationNotPermitted", "CreateLoadBalancer", false, Class::Auth, "AccountNotUsable"),
            ("OperationNotPermitted", "DeleteLoadBalancer", false, Class::InvalidConfig, "Protected"),
            ("InvalidIPAddress.InUse", "RunInstances", false, Class::Retryable, "AddressInUse"),
        ];
        for (code, asked, temporary, class, reason) in cases {
            let failure = refusal(400, code, "").of(asked, temporary).failure("x");
            assert_eq!((failure.class, failure.reason.as_str()), (class, reason), "{code} {asked}");
        }
    }

    #[test]
    fn secrets_in_aws_words_are_left_out() {
        let text = "The request signature we calculated does not match.\n\nThe Canonical String for this request should \
                    have been\n'POST\n/\nx-amz-security-token:hunter2'";
        let failure = refusal(403, "SignatureDoesNotMatch", text).failure("x");
        assert!(
            failure.message.contains("does not match") && !failure.message.contains("hunter2"),
            "{failure}"
        );
        let text = "You are not authorized. Encoded authorization failure message: AbCdEf";
        assert!(!refusal(403, "UnauthorizedOperation", text).failure("x").message.contains("AbCdEf"));
    }
}
