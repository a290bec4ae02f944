use super::*;
use std::collections::HashSet;

const QUEUING: Queuing = Queuing { queues: 8, hand: 2, length: 4 };

fn limits(nominal: u32, min: u32, max: u32) -> Limits {
    Limits { nominal, min, max, exempt: false, queuing: Some(QUEUING) }
}

fn seats(total: u32, levels: &[(&str, Limits)]) -> (Seats<&'static str>, Vec<usize>) {
    let mut seats = Seats::new(total);
    let levels: Vec<(Arc<str>, Limits)> = levels.iter().map(|(name, limits)| ((*name).into(), *limits)).collect();
    let slots = seats.configure(&levels);
    (seats, slots)
}

#[test]
fn hands_are_different_cards_and_always_the_same() {
    for hash in [0, 1, 7, u64::MAX, 0x1234_5678_9abc_def0] {
        let mut space = [0; MAX_HAND];
        let hand = deal(hash, 64, 6, &mut space).to_vec();
        assert_eq!(hand.iter().collect::<HashSet<_>>().len(), 6, "{hand:?}");
        assert!(hand.iter().all(|card| *card < 64));
        let mut space = [0; MAX_HAND];
        assert_eq!(deal(hash, 64, 6, &mut space), hand);
    }
    // Every hand of two out of three is as likely as the others.
    let mut hands = std::collections::HashMap::new();
    for hash in 0..600 {
        let mut space = [0; MAX_HAND];
        *hands.entry(deal(hash, 3, 2, &mut space).to_vec()).or_insert(0) += 1;
    }
    assert!(hands.len() == 6 && hands.values().all(|count| *count == 100), "{hands:?}");
}

#[test]
fn a_level_without_queues_sends_away_and_an_exempt_one_never_does() {
    let reject = Limits { queuing: None, ..limits(2, 2, 2) };
    let exempt = Limits { exempt: true, queuing: None, ..limits(0, 0, 0) };
    let (mut seats, slots) = seats(2, &[("reject", reject), ("exempt", exempt)]);
    let one = seats.arrive(slots[0], 0, 1, || "");
    assert!(matches!(one, Arrival::Seated(_)));
    assert!(matches!(seats.arrive(slots[0], 0, 1, || ""), Arrival::Seated(_)));
    assert_eq!(seats.arrive(slots[0], 0, 1, || ""), Arrival::Refused(Refusal::ConcurrencyLimit));
    for _ in 0..100 {
        assert!(matches!(seats.arrive(slots[1], 0, 5, || ""), Arrival::Seated(_)));
    }
    let Arrival::Seated(spot) = one else { unreachable!("checked above") };
    seats.leave(spot, 0.1);
    assert!(matches!(seats.arrive(slots[0], 0, 1, || ""), Arrival::Seated(_)));
}

#[test]
fn idle_seats_are_borrowed_and_minimums_are_kept() {
    let (mut seats, slots) = seats(10, &[("greedy", limits(5, 5, 10)), ("lender", limits(5, 2, 10))]);
    let mut greedy = 0;
    while let Arrival::Seated(_) = seats.arrive(slots[0], 1, 1, || "greedy") {
        greedy += 1;
    }
    assert_eq!(greedy, 8, "its own five and the three that the lender lends");
    assert_eq!(seats.limit("greedy"), 8);
    // What the lender never lends is there at once.
    assert!(matches!(seats.arrive(slots[1], 2, 1, || ""), Arrival::Seated(_)));
    assert!(matches!(seats.arrive(slots[1], 2, 1, || ""), Arrival::Seated(_)));
    assert!(matches!(seats.arrive(slots[1], 2, 1, || "lender"), Arrival::Waits(..)));
    // A seat that becomes free goes to the one that has less of its share.
    seats.leave(
        Spot {
            level: slots[0],
            queue: seats.levels[slots[0]]
                .as_ref()
                .and_then(|level| level.queues.iter().position(|queue| queue.used > 0))
                .expect("a seat"),
            width: 1,
        },
        0.1,
    );
    assert_eq!(seats.dispatch(), ["lender"]);
    // A limit on borrowing is a limit.
    let (mut seats, slots) = self::seats(10, &[("modest", limits(5, 5, 6)), ("lender", limits(5, 0, 10))]);
    let seated = (0..10).filter(|_| matches!(seats.arrive(slots[0], 1, 1, || ""), Arrival::Seated(_))).count();
    assert_eq!(seated, 6);
}

#[test]
fn queues_take_turns_whatever_their_length() {
    let (mut seats, slots) = seats(1, &[("level", limits(1, 1, 1))]);
    let Arrival::Seated(mut spot) = seats.arrive(slots[0], 0, 1, || "first") else { panic!("a free seat") };
    let (greedy, modest) = (1, 6);
    for _ in 0..8 {
        // Flows whose hands share no queue.
        seats.arrive(slots[0], greedy, 1, || "greedy");
    }
    let Arrival::Waits(..) = seats.arrive(slots[0], modest, 1, || "modest") else { panic!("its own queue has room") };
    let mut order = Vec::new();
    while seats.waiting() > 0 {
        seats.leave(spot, 0.01);
        let queue_of = |seats: &Seats<&'static str>| {
            seats.levels[slots[0]].as_ref().and_then(|level| level.queues.iter().position(|queue| queue.executing > 0))
        };
        order.extend(seats.dispatch());
        spot = Spot { level: slots[0], queue: queue_of(&seats).expect("somebody is seated"), width: 1 };
    }
    let place = order.iter().position(|who| *who == "modest").expect("it was seated");
    assert!(place <= 2, "one request does not wait for eight of another flow: {order:?}");
}

#[test]
fn full_queues_refuse_and_who_gives_up_makes_room() {
    let (mut seats, slots) = seats(1, &[("level", limits(1, 1, 1))]);
    assert!(matches!(seats.arrive(slots[0], 0, 1, || ""), Arrival::Seated(_)));
    let mut last = None;
    let refused = loop {
        match seats.arrive(slots[0], 5, 1, || "") {
            Arrival::Waits(spot, id) => last = Some((spot, id)),
            Arrival::Refused(why) => break why,
            Arrival::Seated(_) => panic!("there is one seat"),
        }
    };
    assert_eq!((refused, seats.waiting()), (Refusal::QueueFull, 7), "two queues of four, and one of them has the seat");
    let (spot, id) = last.expect("somebody waits");
    assert!(seats.give_up(spot, id) && !seats.give_up(spot, id));
    assert!(matches!(seats.arrive(slots[0], 5, 1, || ""), Arrival::Waits(..)));
}

#[test]
fn a_wide_request_waits_for_all_of_its_seats_and_gets_them() {
    let (mut seats, slots) = seats(4, &[("level", limits(4, 4, 4))]);
    let Arrival::Seated(small) = seats.arrive(slots[0], 0, 1, || "") else { panic!("free seats") };
    assert!(matches!(seats.arrive(slots[0], 0, 10, || "wide"), Arrival::Waits(..)));
    assert!(seats.dispatch().is_empty());
    seats.leave(small, 0.1);
    assert_eq!(seats.dispatch(), ["wide"], "alone, though it is wider than the level");
}

#[test]
fn levels_come_and_go_without_losing_seats() {
    let (mut seats, slots) = seats(4, &[("a", limits(2, 2, 2)), ("b", limits(2, 2, 2))]);
    let Arrival::Seated(spot) = seats.arrive(slots[0], 0, 2, || "") else { panic!("free seats") };
    let kept = seats.configure(&[("b".into(), limits(4, 4, 4)), ("c".into(), limits(1, 1, 1))]);
    assert_eq!(kept, [slots[1], 2], "a level in use keeps its slot");
    seats.leave(spot, 0.1);
    let kept = seats.configure(&[("c".into(), limits(1, 1, 1)), ("d".into(), limits(1, 1, 1))]);
    assert_eq!(kept, [2, 0]);
}
