//! Whether the parameters of a submission fit the JSON Schema of the plugin that gets them. A plugin without a schema, or one that is
//! not known here, takes any.

use std::time::{Duration, Instant};

use actix_web::http::StatusCode;
use bson::Document;
use disbatch_core::arrays::NewArray;
use disbatch_core::model::{PluginName, Queue, Step};
use disbatch_core::schedules::Settings;
use disbatch_core::schema::{
    LONGEST_CHECK, MOST_PROBLEMS, Misfit, OfTask, Schemas, as_plugins_get, check_task,
};
use serde_json::{Map, Value, json};
use tokio::task::spawn_blocking;

use crate::error::HttpError;
use crate::state::State;

/// So long the parameters that are made of the documents of a collection may take to be checked.
const LONGEST_OF_COLLECTION: Duration = Duration::from_secs(60);

pub type Checked = Result<(), HttpError>;

pub struct Fit {
    schemas: Schemas,
    plugin: Option<PluginName>,
    steps: Vec<Step>,
}

/// What the parameters of tasks of `queue` with these steps are checked by. `None`: no schema is known for them.
pub async fn of(state: &State, queue: &Queue, steps: &[Step]) -> Result<Option<Fit>, HttpError> {
    let plugin = queue.effective_plugin().ok().flatten();
    let named: Vec<&PluginName> = match steps {
        [] => plugin.iter().collect(),
        steps => steps.iter().filter_map(|step| step.plugin.as_ref().or(plugin.as_ref())).collect(),
    };
    if named.is_empty() {
        return Ok(None);
    }
    let schemas = state.schemas(&named).await?;
    let is_known = named.iter().any(|plugin| schemas.get(plugin).is_some());
    Ok(is_known.then(|| Fit { schemas, plugin, steps: steps.to_vec() }))
}

/// Whether tasks of `queue` may have these parameters, which are given back.
pub async fn check(
    state: &State,
    queue: &Queue,
    steps: &[Step],
    tasks: Vec<Document>,
) -> Result<(Vec<Document>, Checked), HttpError> {
    let Some(fit) = of(state, queue, steps).await? else { return Ok((tasks, Ok(()))) };
    let check = move || {
        let is_one = tasks.len() == 1;
        let named = tasks.iter().enumerate();
        let named =
            named.map(|(index, params)| ((!is_one).then_some(Of::Task(index)), as_plugins_get(params)));
        let checked = fit.check_all(LONGEST_CHECK, named);
        (tasks, checked)
    };
    beside(check).await
}

/// Whether the elements of an array, and its final task, may have their parameters. It is given back.
pub async fn check_array(
    state: &State,
    queue: &Queue,
    steps: &[Step],
    array: NewArray,
) -> Result<(NewArray, Checked), HttpError> {
    let Some(fit) = of(state, queue, steps).await? else { return Ok((array, Ok(()))) };
    let check = move || {
        let last = array.last.iter().map(|last| (Some(Of::Final), as_plugins_get(&last.params)));
        let mut params = as_plugins_get(&array.params);
        let elements = array.items.starting_at(0).enumerate().map(|(index, item)| {
            if let Value::Object(params) = &mut params {
                params.insert(array.key.clone(), item.into_relaxed_extjson());
            }
            (Some(Of::Element(index)), params.clone())
        });
        let checked = fit.check_all(LONGEST_CHECK, last.chain(elements));
        (array, checked)
    };
    beside(check).await
}

pub async fn check_schedule(state: &State, queue: &Queue, settings: &Settings) -> Result<(), HttpError> {
    let tasks = vec![settings.params.clone()];
    check(state, queue, &settings.options.steps, tasks).await?.1
}

/// Checks parameters one after the other, as they are made of the documents of a collection. All of them together may take a
/// while.
pub struct Stream {
    fit: Fit,
    left: Duration,
    seen: usize,
}

impl Stream {
    pub fn new(fit: Fit) -> Self {
        Self { fit, left: LONGEST_OF_COLLECTION, seen: 0 }
    }

    pub fn check(&mut self, params: &Document) -> Result<(), HttpError> {
        let began = Instant::now();
        let of = Some(Of::Document(self.seen));
        let checked = self.fit.check_all(self.left, [(of, as_plugins_get(params))]);
        self.seen += 1;
        self.left = self.left.saturating_sub(began.elapsed());
        checked
    }
}

/// Which task of a submission, counted from 0.
#[derive(Clone, Copy)]
enum Of {
    Task(usize),
    Document(usize),
    Element(usize),
    Final,
}

impl Of {
    fn words(self) -> String {
        match self {
            Self::Task(index) => format!("task {}", index + 1),
            Self::Document(index) => format!("document {}", index + 1),
            Self::Element(index) => format!("element {index}"),
            Self::Final => ".array_final".to_owned(),
        }
    }

    fn index(self) -> Option<usize> {
        match self {
            Self::Task(index) | Self::Document(index) | Self::Element(index) => Some(index),
            Self::Final => None,
        }
    }
}

impl Fit {
    fn check_all(
        &self,
        most: Duration,
        tasks: impl IntoIterator<Item = (Option<Of>, Value)>,
    ) -> Result<(), HttpError> {
        let until = Instant::now().checked_add(most).unwrap_or_else(Instant::now);
        let of = OfTask { plugin: self.plugin.as_ref(), steps: &self.steps };
        let mut misfits: Vec<(Option<Of>, Misfit)> = Vec::new();
        let mut told = 0;
        for (named, params) in tasks {
            if let Err(misfit) = check_task(&self.schemas, of, &params, until) {
                told += misfit.problems().len().max(1);
                let is_late = misfit.problems().is_empty();
                misfits.push((named, misfit));
                if is_late || told >= MOST_PROBLEMS {
                    break;
                }
            }
        }
        if misfits.is_empty() { Ok(()) } else { Err(refused(&misfits)) }
    }
}

/// Checks on a thread where that holds up nobody.
async fn beside<T: Send + 'static>(check: impl FnOnce() -> T + Send + 'static) -> Result<T, HttpError> {
    spawn_blocking(check).await.map_err(|error| HttpError::internal(&error.to_string()))
}

fn refused(misfits: &[(Option<Of>, Misfit)]) -> HttpError {
    let mut problems = Vec::new();
    let mut told = Vec::new();
    for (of, misfit) in misfits {
        told.push(match of {
            Some(of) => format!("{}: {misfit}", of.words()),
            None => misfit.to_string(),
        });
        for problem in misfit.problems() {
            let mut one =
                json!({ "path": problem.pointer, "message": problem.text, "plugin": misfit.plugin.as_str() });
            let places = [("task", of.and_then(Of::index)), ("step", misfit.step)];
            for (name, index) in places {
                if let Some(index) = index {
                    one[name] = Value::from(index);
                }
            }
            problems.push(one);
        }
    }
    problems.truncate(MOST_PROBLEMS);
    let body = json!({ "error": told.join("; "), "problems": problems });
    HttpError::with_body(StatusCode::BAD_REQUEST, body)
}

/// The same error for a form: `fields` has what is wrong with each field, by its pointer.
pub fn for_form(error: HttpError) -> HttpError {
    let Some(problems) = error.body().get("problems").and_then(Value::as_array) else { return error };
    let text = |problem: &Value, key: &str| Some(problem.get(key)?.as_str()?.to_owned());
    let field = |problem: &Value| Some((text(problem, "path")?, Value::from(text(problem, "message")?)));
    let fields: Map<String, Value> = problems.iter().filter_map(field).collect();
    let mut body = error.body().clone();
    body["fields"] = Value::Object(fields);
    HttpError::with_body(error.status(), body)
}
