"""The bus and the actor base, with a real process of its own."""

import os
import re
import signal
import threading
from pathlib import Path

import msgpack
import pytest
import zmq

from actors._base.messaging.bus import MOST_TOPICS, SUSPECT_S
from actors.config.pods.manifest import MAX_BYTES as MAX_MANIFEST_BYTES
from proto.agent.actor import Describe, Dump, Evaluate, Ping, Profile, SetVerbosity, Stop
from proto.agent.settings import Settings
from proto.agent.supervisor import Exited, PeerState, PeerStates, Started, Suspect
from proto.pods.pod_workers import PodUpdate
from proto.v1 import Container, EnvVar, Pod, PodSpec
from proto.wire import codec
from proto.wire.envelope import MAX_BODY_BYTES, Kind
from proto.wire.errors import ProtocolError, Refused
from proto.wire.message import Done
from tests.base import toy_messages as m
from tests.harness import ActorProcess, Stalls, wait_for

PRELUDE = (
    "import sys; import tests.base.toy_messages as messages; "
    "sys.modules['proto.agent.toy'] = sys.modules['proto.agent.peer'] = messages;"
    "messages.__name__ = 'proto.agent.toy';"
    "[setattr(t, '__module__', 'proto.agent.toy') for t in vars(messages).values() if isinstance(t, type)];"
    "import tests.base.toy as toy; sys.modules['actors.toy.actor'] = toy; "
)


@pytest.fixture
def toy():
    with ActorProcess("toy", prelude=PRELUDE) as process:
        yield process


def test_tell_is_handled_before_a_later_ask(toy):
    for value in range(100):
        toy.tell(m.Remember(value=value))
    assert toy.ask(m.Recall()).values == tuple(range(100))


def test_slow_request_does_not_delay_others(toy):
    slow = threading.Thread(target=lambda: toy.ask(m.SlowRecall(delay_s=3.0)))
    with Stalls() as machine:
        slow.start()
        wait_for(lambda: toy.ask(Describe()).tasks > 1, what="the slow one is under way, beside the ticks")
        toy.ask(m.Recall())
        is_under_way = slow.is_alive()
    assert is_under_way or machine.longest_s > 1.0
    slow.join()


WITHIN = """
import os, signal
from actors._base.messaging.mailbox import Inbox
real = Inbox.put
def put(inbox, item):
    real(inbox, item)
    if getattr(getattr(item, "message", None), "name", "") == "Remember":
        os.kill(os.getpid(), signal.SIGTERM)
Inbox.put = put
"""


def test_sigterm_during_a_delivery_ends_the_actor():
    with ActorProcess("toy", prelude=PRELUDE + WITHIN) as toy:
        toy.tell(m.Remember(value=1))
        assert toy.wait_exit() == 0


def test_refused_carries_reason_and_message(toy):
    with pytest.raises(Refused) as refused:
        toy.ask(m.Refuse())
    assert (refused.value.reason, refused.value.message, refused.value.retry) == (
        "NotToday",
        "cannot remember: it is Friday",
        False,
    )


@pytest.mark.parametrize("where", ["handler", "coroutine", "thread"])
def test_unexpected_exception_ends_process_with_its_traceback(toy, where):
    with pytest.raises(Exception, match="toy"):
        toy.ask(m.Crash(where=where), timeout_s=5)
    assert toy.wait_exit() == 70
    assert "KeyError: 'toy'" in Path(toy.dir, "deaths", "toy-1.txt").read_text()


@pytest.mark.parametrize(
    "frames",
    [
        [b"junk", b"junk"],
        [b"one frame"],
        [codec.encode_header(Kind.TELL, "NoSuchType", "test", 0), b"\x80"],
        [codec.encode_header(Kind.TELL, "Remember", "test", 0), codec.encode({"value": "seven"})],
        [codec.encode_header(Kind.TELL, "Remember", "test", 0), codec.encode({"valu": 7})],
        [codec.encode_header(Kind.TELL, "Remember", "test", 0), b"\xc1"],
        [codec.encode_header(Kind.TELL, "Remember", "test", 0), b"\x91" * 100_000],
        [b"x" * 5000, b""],
        [b"", b"", b""],
    ],
)
def test_bad_frames_are_counted_and_never_stop_the_actor(toy, frames):
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(f"ipc://{toy.dir}/toy.sock")
    socket.send_multipart(frames)
    wait_for(lambda: sum(toy.ask(Describe()).dropped.values()) == 1)
    context.destroy(linger=0)
    assert toy.ask(m.Recall()) == m.Seen(values=())


@pytest.mark.parametrize(
    "frames",
    [
        [b"\x01", b"another"],
        [b"\x01a", b"\x01b", b"\x00c"],
        [b"no subscription"],
        [b"\x02", b""],
        [b""],
        [b"", b"", b""],
        [b"\x00never subscribed to"],
        [b"\x01" + b"x" * 5000],
    ],
)
def test_frames_of_tap_subscribers_are_ignored(toy, frames):
    context = zmq.Context()
    attacker, reader = context.socket(zmq.XSUB), context.socket(zmq.SUB)
    for socket in (attacker, reader):
        socket.connect(f"ipc://{toy.dir}/toy.tap")
    for _ in range(3):
        attacker.send_multipart(frames)
    reader.subscribe(b"")
    try:
        wait_for(lambda: toy.ask(m.Recall()) == m.Seen(values=()) and reader.poll(20), what="a record on the tap")
        attacker.close(linger=0)
        while reader.poll(50):
            reader.recv_multipart()
        wait_for(
            lambda: toy.ask(m.Recall()) == m.Seen(values=()) and reader.poll(20), what="a record after it has gone"
        )
    finally:
        context.destroy(linger=0)
    assert toy.pid
    assert toy.ask(Describe()).incarnation == 1


def test_flood_of_bad_frames_does_not_fill_the_log(capfd):
    with ActorProcess(
        "toy", prelude=PRELUDE + "import actors._base.messaging.bus as bus; bus.COMPLAINTS_S = 3.0; "
    ) as toy:
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.set(zmq.SNDHWM, 0)
        socket.connect(f"ipc://{toy.dir}/toy.sock")
        for _ in range(5000):
            socket.send_multipart([b"junk", b"junk"])
        socket.close(linger=10_000)
        wait_for(lambda: toy.ask(Describe()).dropped.get("undecodable") == 5000)
        said = ""

        def counted() -> bool:
            """In one line, or in more where the flood is not over when the first one is due."""
            nonlocal said
            said += capfd.readouterr().err
            more = re.findall(r"(\d+) more lines like the ones before were not logged", said)
            return sum(map(int, more)) == 4990

        wait_for(counted, 20)
        assert said.count("cannot decode a message of") == 10


@pytest.mark.parametrize("v", [-1, 11, 10**9, 2**63])
def test_invalid_verbosity_is_refused(toy, v):
    with pytest.raises(Refused, match=f"cannot set the verbosity to {v}: use a number from 0 to 10"):
        toy.ask(SetVerbosity(v=v))
    assert toy.ask(SetVerbosity(v=10)) == Done()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan"), 1e9])
def test_too_long_profile_is_refused(toy, seconds):
    with pytest.raises(Refused, match="cannot profile for"):
        toy.ask(Profile(seconds=seconds))


def test_too_large_number_is_an_error_of_its_message():
    with pytest.raises(ProtocolError, match="cannot send SetVerbosity"):
        codec.encode(SetVerbosity(v=10**30))


def test_ask_of_an_unknown_type_is_answered(toy):
    class Nonsense(m.Recall, frozen=True, kw_only=True):
        pass

    with pytest.raises(ProtocolError, match="takes no message of type 'Nonsense'"):
        toy.ask(Nonsense())


def test_too_large_answer_is_an_error_of_its_ask_alone():
    with ActorProcess(
        "toy", prelude=PRELUDE + "import proto.wire.codec; proto.wire.codec.MAX_BODY_BYTES = 1000; "
    ) as toy:
        for value in range(300):
            toy.tell(m.Remember(value=100_000 + value))
        with pytest.raises(ProtocolError, match=r"cannot send Seen: \d+ bytes, at most 1000"):
            wait_for(lambda: len(toy.ask(m.Recall()).values) == 300)
        assert toy.ask(Ping())


def test_every_pod_of_a_node_fits_in_one_message():
    environment = (EnvVar(name="BIG", value="x" * 1_000_000),)
    pods = tuple(Pod(spec=PodSpec(containers=(Container(name=f"c{i}", env=environment),))) for i in range(20))
    update = PodUpdate(source="file", op="SET", pods=pods)
    assert codec.decode(codec.encode(update), PodUpdate) == update
    assert Settings().max_pods * MAX_MANIFEST_BYTES < MAX_BODY_BYTES


def test_ask_fails_at_once_when_its_target_dies(toy):
    with ActorProcess("toy", prelude=PRELUDE, peers=()) as asker:
        asker.publish(Started(name="peer", incarnation=4))
        wait_for(lambda: asker.ask(m.Recall()).peers)
        answers: list[m.Seen] = []
        thread = threading.Thread(target=lambda: answers.append(asker.ask(m.AskPeer(timeout_s=30))))
        thread.start()
        wait_for(lambda: asker.ask(Describe()).pending_asks)
        asker.publish(Exited(name="peer", incarnation=4, reason="killed by SIGKILL"))
        thread.join(20)
        assert answers[0].errors == ("ActorDead: peer #4 exited: killed by SIGKILL",)


def states(*peers: tuple[int, bool]) -> PeerStates:
    return PeerStates(peers=tuple(PeerState(name="peer", incarnation=one, ready=ready) for one, ready in peers))


@pytest.mark.parametrize(
    "event",
    [Started(name="peer", incarnation=5), states((5, True)), states((5, False)), states((4, False)), states()],
    ids=["started", "higher and ready", "higher", "not ready", "missing"],
)
def test_ask_fails_when_its_targets_exit_was_missed(event):
    with ActorProcess("toy", prelude=PRELUDE, peers=()) as asker:
        asker.publish(Started(name="peer", incarnation=4))
        wait_for(lambda: asker.ask(m.Recall()).peers)
        answers: list[m.Seen] = []
        thread = threading.Thread(target=lambda: answers.append(asker.ask(m.AskPeer(timeout_s=30))))
        thread.start()
        wait_for(lambda: asker.ask(Describe()).pending_asks)
        asker.publish(states((4, True)))
        asker.publish(Started(name="other", incarnation=1))
        wait_for(lambda: "other#1" in asker.ask(m.Recall()).peers)
        # After CHECK_S the bus asks the peer itself, beside the actor.
        assert asker.ask(Evaluate(expression="len(actor.bus._waiting_for('peer'))")).text == "1"
        asker.publish(event)
        thread.join(20)
        assert answers
        assert answers[0].errors == ("ActorDead: peer #4 exited: its end was noticed late",)


def test_exit_that_is_known_already_fails_no_later_ask():
    with ActorProcess("toy", prelude=PRELUDE, peers=()) as asker:
        asker.publish(Started(name="peer", incarnation=4))
        asker.publish(Started(name="peer", incarnation=5))
        wait_for(lambda: "peer#5" in asker.ask(m.Recall()).peers)
        answers: list[m.Seen] = []
        thread = threading.Thread(target=lambda: answers.append(asker.ask(m.AskPeer(timeout_s=30))))
        thread.start()
        wait_for(lambda: asker.ask(Describe()).pending_asks)
        asker.publish(Exited(name="peer", incarnation=4, reason="killed by SIGKILL"))
        asker.publish(Exited(name="peer", incarnation=5, reason="exit 70"))
        thread.join(20)
        assert answers
        assert answers[0].errors == ("ActorDead: peer #5 exited: exit 70",)


def test_ask_has_a_deadline(toy):
    assert "AskTimeout" in toy.ask(m.AskPeer(timeout_s=0.05)).errors[0]


def test_messages_of_a_dead_incarnation_are_ignored(toy):
    toy.publish(Exited(name="peer", incarnation=7, reason="killed"))
    toy.publish(Started(name="peer", incarnation=8))
    wait_for(lambda: toy.ask(m.Recall()).peers == ("peer#8",))
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(f"ipc://{toy.dir}/toy.sock")
    for incarnation in (7, 8):
        header = codec.encode_header(Kind.TELL, "Remember", "peer", incarnation)
        socket.send_multipart([header, codec.encode(m.Remember(value=incarnation))])
    wait_for(lambda: toy.ask(m.Recall()).values == (8,))
    assert toy.ask(Describe()).dropped == {"dead_incarnation": 1}
    context.destroy(linger=0)


def test_actor_learns_of_peers_that_were_ready_before():
    with ActorProcess("toy", prelude=PRELUDE, peers=("status",)) as toy:
        wait_for(lambda: toy.ask(m.Recall()).peers == ("status#1",))


def test_periodic_function_that_fails_runs_again(toy):
    wait_for(lambda: toy.ask(Describe()).state["ticks"] > 5)
    tick = next(counter for counter in toy.ask(Describe()).messages if counter.type == "every:tick")
    assert tick.failed == 1


def test_peer_that_does_not_answer_is_reported_to_the_supervisor():
    with ActorProcess("toy", prelude=PRELUDE, peers=()) as asker:
        asker.publish(Started(name="peer", incarnation=4))
        wait_for(lambda: asker.ask(m.Recall()).peers)
        assert "AskTimeout" in asker.ask(m.AskPeer(timeout_s=0.1)).errors[0]
        assert "AskTimeout" in asker.ask(m.AskPeer(timeout_s=SUSPECT_S)).errors[-1]
        wait_for(lambda: asker.supervisor.of(Suspect))
        assert asker.supervisor.of(Suspect) == [Suspect(name="peer", incarnation=4)]


def test_hung_handler_shows_in_dump_and_stacks(toy):
    toy.tell(m.Hang())
    wait_for(lambda: toy.ask(Dump()).in_flight == "Hang")
    toy.tell(m.Remember(value=1))
    wait_for(lambda: "Remember" in toy.ask(Dump()).mailbox_head)  # news of peers may stand before it
    os.kill(toy.pid, signal.SIGUSR2)
    wait_for(lambda: "in hang" in Path(toy.dir, "deaths", "toy-1.stacks").read_text())
    toy.kill()


def test_stop_and_sigterm_end_it_with_exit_code_0(toy):
    toy.tell(Stop())
    assert toy.wait_exit() == 0
    toy.start()
    wait_for(lambda: toy.ask(Ping()).mailbox == 0)  # a tick may wait behind it
    os.kill(toy.pid, signal.SIGTERM)
    assert toy.wait_exit() == 0


def test_actor_ends_with_the_supervisor(toy):
    os.close(toy._supervisor_w)
    assert toy.wait_exit() == 0
    toy._supervisor_w = os.open("/dev/null", os.O_RDONLY)


def test_tap_reports_only_the_types_that_are_subscribed_to(toy):
    context = zmq.Context()
    tap = context.socket(zmq.SUB)
    tap.subscribe(b"Describe")
    tap.connect(f"ipc://{toy.dir}/toy.tap")
    wait_for(lambda: toy.ask(Describe()) and tap.poll(50))
    tapped = "[actor.bus.is_tapped(one) for one in ('Describe', 'Recall')]"
    assert toy.ask(Evaluate(expression=tapped)).text == "[True, False]"
    tap.unsubscribe(b"Describe")
    wait_for(lambda: toy.ask(Evaluate(expression=tapped)).text == "[False, False]")
    for number in range(MOST_TOPICS + 1):
        tap.subscribe(f"topic {number}")
    wait_for(lambda: toy.ask(Evaluate(expression=tapped)).text == "[True, True]", what="a tap of all types")
    context.destroy(linger=0)
    wait_for(lambda: toy.ask(Evaluate(expression=tapped)).text == "[False, False]")


def test_tap_publishes_only_with_subscribers(toy):
    context = zmq.Context()
    tap = context.socket(zmq.SUB)
    tap.subscribe(b"")
    tap.connect(f"ipc://{toy.dir}/toy.tap")
    wait_for(lambda: toy.ask(m.Recall()) and tap.poll(50))
    topic, record = tap.recv_multipart()
    assert topic == b"Recall"
    assert msgpack.unpackb(record).keys() >= {"source", "queued_ms", "handled_ms"}
    context.destroy(linger=0)
