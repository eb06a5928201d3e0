//! One script call, followed to wherever the server points.

use std::sync::Arc;
use std::time::Instant;

use redis::{Cmd, Pipeline, RedisResult, Value};
use smallvec::SmallVec;
use tokio::time::timeout_at;
use tollgate::Timestamp;

use super::{Link, Node, Reply};
use crate::answer::{Verdicts, split};
use crate::failure::{Failure, Refusal};
use crate::question::Question;
use crate::script::{Form, ScriptClock, command};

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

impl Call<'_> {
    /// Puts the questions to a server.
    ///
    /// Sent again only where the server says that it did nothing: it does not know the script, or
    /// the keys are elsewhere. A call that was lost or is late may have been carried out, so it never
    /// is.
    pub(crate) async fn run(&self, node: &Arc<Node>, link: Link) -> Replies {
        let origin = Course { node: Arc::clone(node), link, form: Form::Sha, asking: false };
        let mut course = origin.clone();
        for _ in 0..HOPS {
            match self.step(&mut course).await {
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

    /// Sends once.
    async fn step(&self, course: &mut Course) -> Result<Step, Failure> {
        let refusal = match self.send(course).await? {
            Value::ServerError(error) => Refusal::from(&error),
            value => return self.answers(value, &course.node),
        };
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
            Refusal::Unowned(failure) => {
                if let Some(cluster) = course.node.cluster() {
                    cluster.suspect();
                }
                return Err(failure);
            }
            Refusal::Unfit(failure) => {
                course.node.lose_all(&failure);
                return Err(failure);
            }
            Refusal::Failed(failure) => return Err(failure),
        }
        Ok(Step::Onward)
    }

    async fn send(&self, course: &mut Course) -> Result<Value, Failure> {
        let begun = Instant::now();
        if begun >= self.deadline {
            // Nobody waits for it any more; not asking charges nobody.
            return Err(Failure::timeout());
        }
        course.node.shared.counters.count_call();
        let command = command(course.form, ScriptClock::Server, self.questions);
        let reply = transmit(&mut course.link, command, course.asking);
        match timeout_at(self.deadline.into(), reply).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                let failure = Failure::from(&error);
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

    async fn redirect(&self, course: &mut Course, address: &str) -> Result<(), Failure> {
        let outside = || Failure::protocol("sent elsewhere by a server that is not in a cluster");
        let cluster = course.node.cluster().ok_or_else(outside)?;
        cluster.suspect();
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
            replies.extend(Box::pin(alone.run(&origin.node, origin.link.clone())).await);
        }
        replies
    }

    /// Asks again, for windows of calendars as they are by the server's clock. Nothing was decided.
    async fn run_at(&self, now: Timestamp, origin: &Course) -> Replies {
        let questions: Vec<Question> = self.questions.iter().map(|one| one.at(now)).collect();
        let call = Call { questions: &questions, deadline: self.deadline };
        Box::pin(call.run(&origin.node, origin.link.clone())).await
    }

    fn answers(&self, value: Value, node: &Node) -> Result<Step, Failure> {
        let verdicts = split(value, self.questions).map_err(Failure::protocol)?;
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

async fn transmit(link: &mut Link, command: Cmd, asking: bool) -> RedisResult<Value> {
    if !asking {
        return link.connection.send_packed_command(&command).await;
    }
    let mut both = Pipeline::with_capacity(2);
    both.add_command(redis::cmd("ASKING")).add_command(command);
    let mut replies = link.connection.send_packed_commands(&both, 1, 1).await?;
    Ok(replies.pop().unwrap_or(Value::Nil))
}
