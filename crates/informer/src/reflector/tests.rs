use std::collections::VecDeque;

use futures::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::ApiError;
use parking_lot::Mutex;

use super::*;
use crate::clock::Fake;
use crate::{Informer, Item, Source, Stream, struct_events, structs};

fn object(name: &str, revision: u64) -> Arc<ConfigMap> {
    Arc::new(ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            uid: Some(name.into()),
            resource_version: Some(revision.to_string()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    })
}

/// What the API answers to the next call, in order. After the last answer it never answers again.
enum Answer {
    List(Vec<Arc<ConfigMap>>, u64, Option<&'static str>),
    /// As `List`, the only page, with some that cannot be read.
    Page(Vec<Arc<ConfigMap>>, Vec<Undecodable>, u64),
    /// Ends after these, or stays open.
    Watch(Vec<Result<Event<ConfigMap>, ApiError>>, bool),
    Refuse(ApiError),
    /// A stream in which somebody made a mistake.
    Panic,
}

#[derive(Clone)]
struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Script {
    async fn next(&self, call: String) -> Answer {
        self.calls.lock().push(call);
        let answer = self.answers.lock().pop_front();
        match answer {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

impl Source for Script {
    type Object = ConfigMap;

    fn name(&self) -> String {
        "configmaps".to_owned()
    }

    async fn list(&self, params: ListParams) -> Result<client::List<Item<ConfigMap>>, client::Error> {
        match self.next(format!("list after {}", params.next.unwrap_or_default())).await {
            Answer::List(items, revision, next) => Ok(structs(client::List {
                items,
                revision: revision.to_string(),
                next: next.map(str::to_owned),
                remaining: None,
                undecodable: vec![],
            })),
            Answer::Page(items, undecodable, revision) => {
                let revision = revision.to_string();
                Ok(structs(client::List { items, revision, next: None, remaining: None, undecodable }))
            }
            Answer::Refuse(error) => Err(error.into()),
            Answer::Watch(..) | Answer::Panic => panic!("a watch was expected"),
        }
    }

    async fn watch(&self, params: WatchParams) -> Result<Stream<ConfigMap>, client::Error> {
        let from = params.resource_version.unwrap_or_else(|| "nothing".to_owned());
        match self.next(format!("watch from {from}")).await {
            Answer::Watch(events, stays) => {
                let events = stream::iter(events).map(|event| event.map_err(client::Error::from));
                Ok(if stays { struct_events(events.chain(stream::pending())) } else { struct_events(events) })
            }
            Answer::Refuse(error) => Err(error.into()),
            Answer::Panic => Ok(stream::once(async { panic!("a mistake") }).boxed()),
            Answer::List(..) | Answer::Page(..) => panic!("a list was expected"),
        }
    }
}

fn bookmark(revision: u64, initial_events_end: bool) -> Result<Event<ConfigMap>, ApiError> {
    Ok(Event::Bookmark { revision: revision.to_string(), initial_events_end })
}

/// Plays the script to its end; answers the calls made and the names and revisions in the cache.
async fn play(answers: Vec<Answer>) -> (Vec<String>, Vec<String>, Phase) {
    let clock = Fake::at(jiff::Timestamp::UNIX_EPOCH);
    let script = Script { answers: Arc::new(Mutex::new(answers.into())), calls: Arc::default() };
    let informer = Informer::<ConfigMap>::empty("configmaps");
    let reflector = Reflector::new(Box::new(script.clone()), informer.shared().clone(), clock.clone(), Arc::default());
    let stop = CancellationToken::new();
    let running = tokio::spawn(reflector.run(stop.clone()));
    loop {
        // With tokio's time paused this returns once the reflector waits.
        tokio::time::sleep(Duration::from_millis(1)).await;
        match clock.next_wake() {
            Some(next) => clock.advance(next),
            None => break,
        }
    }
    let mut cached: Vec<String> = informer
        .list()
        .iter()
        .map(|object| {
            let meta = &object.metadata;
            format!("{}@{}", meta.name.as_deref().unwrap_or("?"), meta.resource_version.as_deref().unwrap_or("?"))
        })
        .collect();
    cached.sort();
    let phase = informer.phase();
    stop.cancel();
    running.await.expect("the reflector does not panic");
    (script.calls.lock().clone(), cached, phase)
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_goes_on_as_a_watch() {
    let (calls, cached, phase) = play(vec![Answer::Watch(
        vec![
            Ok(Event::Added(object("a", 1))),
            Ok(Event::Added(object("b", 2))),
            bookmark(5, true),
            Ok(Event::Modified(object("a", 6))),
            Ok(Event::Deleted(object("b", 7))),
            bookmark(9, false),
        ],
        true,
    )])
    .await;
    assert_eq!(calls, ["watch from nothing"]);
    assert_eq!(cached, ["a@6"]);
    assert_eq!(phase, Phase::Watching { revision: "9".to_owned() });
}

#[tokio::test(start_paused = true)]
async fn servers_without_streaming_lists_are_read_by_pages() {
    let (calls, cached, _) = play(vec![
        Answer::Refuse(ApiError::bad_request("sendInitialEvents is unknown")),
        Answer::List(vec![object("a", 1)], 4, Some("page2")),
        Answer::List(vec![object("b", 2)], 4, None),
        Answer::Watch(vec![], true),
    ])
    .await;
    assert_eq!(calls, ["watch from nothing", "list after ", "list after page2", "watch from 4"]);
    assert_eq!(cached, ["a@1", "b@2"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_to_stream_a_list_is_read_by_pages() {
    let failure = ApiError::internal("the required storage feature RequestWatchProgress is disabled");
    let (calls, cached, _) = play(vec![
        Answer::Watch(vec![Err(failure)], false),
        Answer::List(vec![object("a", 1)], 4, None),
        Answer::Watch(vec![], true),
    ])
    .await;
    assert_eq!(calls, ["watch from nothing", "list after ", "watch from 4"]);
    assert_eq!(cached, ["a@1"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_or_breaks_goes_on_where_it_was() {
    let (calls, cached, _) = play(vec![
        Answer::Watch(vec![bookmark(3, true), Ok(Event::Added(object("a", 4)))], false),
        Answer::Refuse(ApiError::unavailable("restarting")),
        Answer::Watch(vec![bookmark(8, false)], false),
        Answer::Watch(vec![], true),
    ])
    .await;
    assert_eq!(calls, ["watch from nothing", "watch from 4", "watch from 4", "watch from 8"]);
    assert_eq!(cached, ["a@4"]);
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_is_gone_makes_it_read_everything_again() {
    let (calls, cached, _) = play(vec![
        Answer::Watch(
            vec![Ok(Event::Added(object("a", 1))), Ok(Event::Added(object("b", 2))), bookmark(3, true)],
            false,
        ),
        Answer::Watch(vec![Err(ApiError::expired("too old resource version"))], true),
        Answer::Watch(vec![Ok(Event::Added(object("b", 2))), bookmark(90, true)], true),
    ])
    .await;
    assert_eq!(calls, ["watch from nothing", "watch from 3", "watch from nothing"]);
    assert_eq!(cached, ["b@2"], "a was deleted while nobody watched");
}

#[tokio::test(start_paused = true)]
async fn initial_events_that_are_cut_off_do_not_count() {
    let (calls, cached, _) = play(vec![
        Answer::Watch(vec![Ok(Event::Added(object("a", 1)))], false),
        Answer::List(vec![object("b", 2)], 4, None),
        Answer::Watch(vec![], true),
    ])
    .await;
    assert_eq!(calls, ["watch from nothing", "list after ", "watch from 4"]);
    assert_eq!(cached, ["b@2"]);
}

#[tokio::test(start_paused = true)]
async fn pages_whose_revision_was_compacted_are_read_in_one() {
    let (calls, cached, _) = play(vec![
        Answer::Refuse(ApiError::bad_request("sendInitialEvents is unknown")),
        Answer::List(vec![object("a", 1)], 4, Some("page2")),
        Answer::Refuse(ApiError::expired("the continue token is too old")),
        Answer::List(vec![object("b", 2)], 7, None),
        Answer::Watch(vec![], true),
    ])
    .await;
    assert_eq!(calls, ["watch from nothing", "list after ", "list after page2", "list after ", "watch from 7"]);
    assert_eq!(cached, ["b@2"]);
}

fn odd(name: &str, uid: &str, revision: u64, deleted: bool) -> Result<Event<ConfigMap>, ApiError> {
    Ok(Event::Undecodable { object: undecodable(name, uid, revision), deleted })
}

fn undecodable(name: &str, uid: &str, revision: u64) -> Undecodable {
    let mut map = ConfigMap::clone(&object(name, revision));
    map.metadata.uid = Some(uid.to_owned());
    Undecodable::of(&map, "odd")
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_stays_as_it_was_known_and_the_watch_goes_on() {
    let (calls, cached, phase) = play(vec![Answer::Watch(
        vec![
            Ok(Event::Added(object("a", 1))),
            Ok(Event::Added(object("b", 2))),
            odd("never read", "7", 3, false),
            bookmark(4, true),
            odd("a", "a", 5, false),
            Ok(Event::Modified(object("b", 6))),
            bookmark(9, false),
        ],
        true,
    )])
    .await;
    assert_eq!(calls, ["watch from nothing"]);
    assert_eq!(cached, ["a@1", "b@6"]);
    assert_eq!(phase, Phase::Watching { revision: "9".to_owned() });
}

#[tokio::test(start_paused = true)]
async fn what_is_set_aside_is_healed_by_a_good_version_and_ends_with_its_object() {
    let start = vec![
        Ok(Event::Added(object("a", 1))),
        Ok(Event::Added(object("b", 2))),
        Ok(Event::Added(object("c", 3))),
        bookmark(4, true),
        odd("a", "a", 5, false),
        odd("b", "b", 6, false),
        odd("c", "another", 7, false),
    ];
    let (_, cached, _) = play(vec![Answer::Watch(start.clone(), true)]).await;
    assert_eq!(cached, ["a@1", "b@2"], "c is gone for certain: another object has its name");
    let mut healed = start;
    healed.extend([Ok(Event::Modified(object("a", 8))), odd("b", "b", 9, true), Ok(Event::Modified(object("c", 10)))]);
    let (_, cached, _) = play(vec![Answer::Watch(healed, true)]).await;
    assert_eq!(cached, ["a@8", "c@10"]);
}

#[tokio::test(start_paused = true)]
async fn lists_set_aside_what_they_cannot_read_and_forget_what_is_no_longer_there() {
    let (calls, cached, _) = play(vec![
        Answer::Watch(
            vec![
                Ok(Event::Added(object("a", 1))),
                Ok(Event::Added(object("b", 2))),
                bookmark(3, true),
                odd("b", "b", 4, false),
                Err(ApiError::expired("too old resource version")),
            ],
            true,
        ),
        Answer::Refuse(ApiError::bad_request("sendInitialEvents is unknown")),
        Answer::Page(vec![object("c", 5)], vec![undecodable("a", "a", 6)], 7),
        Answer::Watch(vec![], true),
    ])
    .await;
    assert_eq!(calls, ["watch from nothing", "watch from nothing", "list after ", "watch from 7"]);
    assert_eq!(cached, ["a@1", "c@5"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_cannot_get_past_a_revision_reads_everything_again() {
    let stuck = || Answer::Watch(vec![Err(ApiError::internal("this cannot be sent"))], true);
    let (calls, cached, _) = play(vec![
        Answer::Watch(vec![Ok(Event::Added(object("a", 1))), bookmark(3, true)], false),
        stuck(),
        // Getting further starts the count anew.
        Answer::Watch(vec![bookmark(4, false), Err(ApiError::internal("this cannot be sent"))], true),
        stuck(),
        // A server that is away is not at fault.
        Answer::Refuse(ApiError::unavailable("restarting")),
        Answer::Refuse(ApiError::unavailable("restarting")),
        stuck(),
        Answer::Watch(vec![Ok(Event::Added(object("b", 8))), bookmark(9, true)], true),
    ])
    .await;
    let again = ["watch from 3", "watch from 3", "watch from 4", "watch from 4", "watch from 4", "watch from 4"];
    assert_eq!(calls[0], "watch from nothing");
    assert_eq!(calls[1..7], again);
    assert_eq!(calls[7..], ["watch from nothing"]);
    assert_eq!(cached, ["b@8"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_on_the_way_does_not_end_the_informer() {
    let (calls, cached, _) = play(vec![
        Answer::Watch(vec![Ok(Event::Added(object("a", 1))), bookmark(3, true)], false),
        Answer::Panic,
        Answer::Watch(vec![Ok(Event::Modified(object("a", 4)))], true),
    ])
    .await;
    assert_eq!(calls, ["watch from nothing", "watch from 3", "watch from 3"]);
    assert_eq!(cached, ["a@4"]);
}
