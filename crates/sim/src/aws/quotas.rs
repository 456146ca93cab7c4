//! Service Quotas, as far as anybody has to ask it: how many virtual CPUs may run at once. It speaks JSON, unlike the others.

use super::request::{Answer, Call, Refusal, Service};
use super::state::State;
use serde_json::{Map, Value, json};

/// Running on-demand standard instances, in virtual CPUs.
const STANDARD_VCPUS: &str = "L-1216C47A";

/// A call, by the header that names its action and by its body.
pub(super) fn read(target: &str, body: &str) -> Call {
    let action = target.strip_prefix("ServiceQuotasV20190624.").unwrap_or_default().to_string();
    let fields: Map<String, Value> = serde_json::from_str(body).unwrap_or_default();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToString::to_string);
    let params = fields.iter().map(|(key, value)| (key.clone(), text(value))).collect();
    Call { service: Service::Quotas, action, params }
}

/// A refusal in this service's form.
pub(super) fn refused(refusal: &Refusal) -> String {
    json!({"__type": refusal.code, "message": refusal.message}).to_string()
}

impl State {
    pub(super) fn quota(&self, call: &Call) -> Result<Answer, Refusal> {
        if call.action != "GetServiceQuota" {
            return Err(Service::Quotas.not_simulated(&call.action));
        }
        let param = |name: &str| call.params.get(name).map_or("", String::as_str);
        if (param("ServiceCode"), param("QuotaCode")) != ("ec2", STANDARD_VCPUS) {
            let why = "The request failed because the specified service or quota does not exist.";
            return Err(Refusal::new("NoSuchResourceException", why));
        }
        let quota = json!({"ServiceCode": "ec2", "QuotaCode": STANDARD_VCPUS, "Value": f64::from(self.quotas.vcpus),
            "QuotaName": "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"});
        Ok(Answer { status: 200, body: json!({"Quota": quota}).to_string() })
    }
}
