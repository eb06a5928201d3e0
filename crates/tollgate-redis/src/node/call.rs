//! A call that was not answered as usual, followed to wherever the server points.

use std::sync::Arc;
use std::time::Instant;

use redis::{Value, parse_redis_value};
use smallvec::SmallVec;
use tokio::time::timeout_at;
use tollgate::Timestamp;

use super::{Link, Node, Reply};
use crate::answer::{Verdicts, split};
use crate::failure::{Failure, Refusal};
use crate::question::Question;
use crate::script::{Form, ScriptClock, encode};

/// What has the next command answered though its slot is not this server's yet.
const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

/// How often a call may be pointed elsewhere before it gives up: more often than servers that do not
/// point at each other would.
const HOPS: usize = 8;

/// One answer per question; one question is the most common.
pub(crate) type Replies = SmallVec<[Reply; 1]>;

/// Questions that go out together.
pub(crate) struct Call<'q> {
    pub(crate) questions: &'q [Question],
    pub(crate) deadline: Instant,
}

/// What became of a call that was sent.
enum Step {
    Answered(Replies),
    /// It has to be sent elsewhere, or otherwise.
    Onward,
    /// Its keys are partly here and partly there.
    Divided,
    /// It is another time by the server's clock than it was asked for.
    Elsewhen(Timestamp),
}

/// Where a call goes and how.
#[derive(Clone)]
struct Course {
    node: Arc<Node>,
    link: Link,
    form: Form,
    // The slot is not this server's yet; it answers only if asked to make an exception.
    asking: bool,
}

impl Node {
    /// Does what a refusal means for the calls to come, whoever it was an answer to.
    fn heed(&self, refusal: &Refusal) {
        match refusal {
            Refusal::Moved(_) | Refusal::Ask(_) | Refusal::Unowned(_) => {
                if let Some(cluster) = self.cluster() {
                    cluster.suspect();
                }
            }
            Refusal::Unfit(failure) => self.lose_all(failure),
            Refusal::NoScript | Refusal::TryAgain | Refusal::Failed(_) => {}
        }
    }

    /// The same of a reply that nobody waits for.
    pub(super) fn heed_reply(&self, reply: &[u8]) {
        if let Ok(Value::ServerError(error)) = parse_redis_value(reply) {
            self.heed(&Refusal::from(&error));
        }
    }
}

impl Call<'_> {
    /// Puts the questions to a server, or goes on from the reply it has already given.
    ///
    /// Sent again only where the server says that it did nothing: it does not know the script, or
    /// the keys are elsewhere. A call that was lost or is late may have been carried out, so it never
    /// is.
    pub(crate) async fn run(
        &self,
        node: &Arc<Node>,
        link: Link,
        mut reply: Option<Vec<u8>>,
    ) -> Replies {
        let origin = Course { node: Arc::clone(node), link, form: Form::Sha, asking: false };
        let mut course = origin.clone();
        for _ in 0..HOPS {
            match self.step(&mut course, reply.take()).await {
                Ok(Step::Answered(replies)) => return replies,
                Ok(Step::Onward) => {}
                Ok(Step::Divided) => match self.questions {
                    // Whoever asked may ask again; waiting here would keep others waiting too.
                    [_] => return self.failed(Failure::divided()),
                    _ => return self.one_by_one(&origin).await,
                },
                Ok(Step::Elsewhen(now)) => return self.run_at(now, &origin).await,
                Err(failure) => return self.failed(failure),
            }
        }
        self.failed(Failure::unavailable("the servers point at each other"))
    }

    /// Sends once, unless there is a reply.
    async fn step(&self, course: &mut Course, reply: Option<Vec<u8>>) -> Result<Step, Failure> {
        let reply = match reply {
            Some(reply) => reply,
            None => self.send(course).await?,
        };
        let refusal = match parse_redis_value(&reply) {
            Ok(Value::ServerError(error)) => Refusal::from(&error),
            _ => return self.answers(&reply, &course.node),
        };
        course.node.heed(&refusal);
        match refusal {
            Refusal::NoScript => course.form = Form::Text,
            Refusal::Moved(address) => {
                self.redirect(course, &address).await?;
                course.asking = false;
            }
            Refusal::Ask(address) => {
                self.redirect(course, &address).await?;
                course.asking = true;
            }
            Refusal::TryAgain => return Ok(Step::Divided),
            Refusal::Unowned(failure) | Refusal::Unfit(failure) | Refusal::Failed(failure) => {
                return Err(failure);
            }
        }
        Ok(Step::Onward)
    }

    async fn send(&self, course: &Course) -> Result<Vec<u8>, Failure> {
        let begun = Instant::now();
        if begun >= self.deadline {
            // Nobody waits for it any more; not asking charges nobody.
            return Err(Failure::timeout());
        }
        course.node.shared.counters.count_call();
        match timeout_at(self.deadline.into(), self.transmit(course)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(failure)) => {
                course.node.lose(&course.link, &failure);
                Err(failure)
            }
            Err(_) => {
                let failure = Failure::timeout();
                // A link is not to blame for what was sent when hardly any time was left.
                if begun.elapsed() >= course.node.shared.deadline / 2 {
                    course.node.lose(&course.link, &failure);
                }
                Err(failure)
            }
        }
    }

    async fn transmit(&self, course: &Course) -> Result<Vec<u8>, Failure> {
        let command = encode(course.form, ScriptClock::Server, self.questions);
        match course.asking {
            true => course.link.wire.request_second(&[ASKING, &command].concat()).await,
            false => course.link.wire.request(&command).await,
        }
    }

    async fn redirect(&self, course: &mut Course, address: &str) -> Result<(), Failure> {
        let outside = || {
            Failure::protocol("the server is one of a cluster; write redis+cluster:// in its URL")
        };
        let cluster = course.node.cluster().ok_or_else(outside)?;
        course.node = cluster.node_at(address, course.node.host())?;
        course.link = course.node.link(self.deadline).await?;
        course.form = Form::Sha;
        Ok(())
    }

    /// Asks each question by itself: its keys may be whole on one side.
    async fn one_by_one(&self, origin: &Course) -> Replies {
        let mut replies = Replies::new();
        for question in self.questions {
            let questions = std::slice::from_ref(question);
            let alone = Call { questions, deadline: self.deadline };
            replies.extend(Box::pin(alone.run(&origin.node, origin.link.clone(), None)).await);
        }
        replies
    }

    /// Asks again, for windows of calendars as they are by the server's clock. Nothing was decided.
    async fn run_at(&self, now: Timestamp, origin: &Course) -> Replies {
        let questions: Vec<Question> = self.questions.iter().map(|one| one.at(now)).collect();
        let call = Call { questions: &questions, deadline: self.deadline };
        Box::pin(call.run(&origin.node, origin.link.clone(), None)).await
    }

    fn answers(&self, reply: &[u8], node: &Node) -> Result<Step, Failure> {
        let verdicts = split(reply, self.questions).map_err(Failure::protocol)?;
        Ok(match verdicts {
            Verdicts::Decided(at, answers) => {
                node.shared.saw(at);
                Step::Answered(answers.into_iter().map(|answer| Ok((at, answer))).collect())
            }
            Verdicts::Elsewhen(now) => {
                node.shared.saw(now);
                Step::Elsewhen(now)
            }
        })
    }

    fn failed(&self, failure: Failure) -> Replies {
        self.questions.iter().map(|_| Err(failure.clone())).collect()
    }
}
