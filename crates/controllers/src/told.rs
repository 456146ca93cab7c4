//! Tells the recorder of every call that a Kubernetes client makes: method and path, never a body or a header. A call that
//! nobody answers ends here: the client by itself would wait for minutes.

use crate::context::Clock;
use butler_drivers::{Call, Class, Outcome, SharedRecorder};
use http::{Method, Request, Response};
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// What goes wrong below a client.
type Anything = Box<dyn Error + Send + Sync>;

/// A layer around a client's connection.
#[derive(Clone)]
pub(crate) struct Tell {
    recorder: SharedRecorder,
    clock: Clock,
    host: String,
    limit: Duration,
}

/// Nobody answered.
#[derive(Debug, thiserror::Error)]
#[error("{host} did not answer within {limit:?}")]
pub(crate) struct NoAnswer {
    host: String,
    limit: Duration,
}

/// The service that it makes.
#[derive(Clone)]
pub(crate) struct Telling<S> {
    tell: Tell,
    inner: S,
}

impl Tell {
    /// `limit` is for one call until its answer begins: watches begin at once and may last.
    pub(crate) fn new(recorder: SharedRecorder, clock: Clock, host: String, limit: Duration) -> Tell {
        Tell { recorder, clock, host, limit }
    }

    fn tell(&self, operation: String, mutates: bool, began: jiff::Timestamp, outcome: Outcome) {
        let took = crate::runtime::until(began, (self.clock)());
        let object = format!("cluster at {}", self.host);
        self.recorder.record(Call { system: "kubernetes", operation, object, mutates, began, took, outcome });
    }
}

impl<S> Layer<S> for Tell {
    type Service = Telling<S>;

    fn layer(&self, inner: S) -> Telling<S> {
        Telling { tell: self.clone(), inner }
    }
}

impl<S, A, B> Service<Request<A>> for Telling<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<Anything>,
{
    type Response = S::Response;
    type Error = Anything;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, Anything>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Anything>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let mutates = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let operation = format!("{} {}", request.method(), request.uri().path());
        let began = (self.tell.clock)();
        let (tell, answer) = (self.tell.clone(), self.inner.call(request));
        Box::pin(async move {
            let answer = match tokio::time::timeout(tell.limit, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(NoAnswer { host: tell.host.clone(), limit: tell.limit }.into()),
            };
            let outcome = match &answer {
                Ok(response) if response.status().as_u16() < 400 => {
                    Outcome::Ok(response.status().as_u16().to_string())
                }
                Ok(response) => Outcome::Failed {
                    class: class(response.status().as_u16()),
                    message: response.status().to_string(),
                },
                Err(error) => Outcome::Failed { class: Class::Retryable, message: in_words(error.as_ref()) },
            };
            tell.tell(operation, mutates, began, outcome);
            answer
        })
    }
}

/// An error with its innermost cause: a client alone says no more than that it could not connect.
fn in_words(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    let (words, cause) = (error.to_string(), innermost.to_string());
    if words.contains(&cause) { words } else { format!("{words}: {cause}") }
}

fn class(status: u16) -> Class {
    match status {
        401 | 403 => Class::Auth,
        409 => Class::Conflict,
        429 => Class::Throttled,
        400..=499 => Class::InvalidConfig,
        _ => Class::Retryable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use butler_drivers::Recorder;
    use parking_lot::Mutex;
    use std::convert::Infallible;
    use std::sync::Arc;

    #[derive(Default)]
    struct Kept(Mutex<Vec<Call>>);

    impl Recorder for Kept {
        fn record(&self, call: Call) {
            self.0.lock().push(call);
        }
    }

    /// Never answers.
    struct Hung;

    impl Service<Request<()>> for Hung {
        type Response = Response<()>;
        type Error = Infallible;
        type Future = std::future::Pending<Result<Response<()>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            std::future::pending()
        }
    }

    #[tokio::test]
    async fn a_call_that_nobody_answers_ends_and_is_told() {
        let kept = Arc::new(Kept::default());
        let clock: Clock = Arc::new(jiff::Timestamp::now);
        let tell = Tell::new(kept.clone(), clock, "10.0.0.1".to_owned(), Duration::from_millis(20));
        let request = Request::patch("/api/v1/namespaces/a/configmaps/b").body(()).unwrap();
        let error = tell.layer(Hung).call(request).await.unwrap_err();
        assert_eq!(error.to_string(), "10.0.0.1 did not answer within 20ms");
        let calls = kept.0.lock();
        assert_eq!(calls[0].operation, "PATCH /api/v1/namespaces/a/configmaps/b");
        assert!(calls[0].mutates && matches!(calls[0].outcome, Outcome::Failed { .. }), "{:?}", calls[0]);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn the_innermost_cause_is_told() {
        let refused = std::io::Error::other("connection refused by 10.40.0.60");
        assert_eq!(in_words(&Outer(refused)), "client error (Connect): connection refused by 10.40.0.60");
        assert_eq!(in_words(&std::io::Error::other("alone")), "alone");
    }
}
