"""quire run as a conversation, on a real pseudo-terminal."""
import re
import shlex
import time

import pytest
from terminal import Terminal

PROMPT = r"(^|\n)> $"
CTRL_C, CTRL_D, UP, BACKSPACE = "\x03", "\x04", "\x1b[A", "\x7f"


@pytest.fixture
def chat(quire, smollm2):
    """Opens chats that are ended with the test."""
    opened = []

    def start(*options, shell=False):
        command = [quire.binary, "run", str(smollm2), *(options if "--context" in options else ["--context", "2048", *options])]
        if shell:  # not the leader of its process group, as under make
            command = ["sh", "-c", f"{shlex.join(command)}; echo ended $?"]
        opened.append(Terminal(command))
        opened[-1].until(PROMPT)
        return opened[-1]
    yield start
    for terminal in opened:
        terminal.close()


def ask(terminal, line):
    terminal.enter(line)
    return terminal.until(PROMPT)


def test_commands(chat):
    terminal = chat()
    text = ask(terminal, "/help")
    for command in ["/help", "/clear", "/system", "/stats", "/quit", "Ctrl-C"]:
        assert command in text
    assert "unknown command /frob" in ask(terminal, "/frob")
    assert "system message set" in ask(terminal, "/system Be brief.")
    assert "conversation: 0 messages" in ask(terminal, "/stats")
    terminal.enter("/quit")
    assert terminal.wait() == 0


def test_the_conversation_is_kept_and_its_kv_reused(chat):
    terminal = chat("--max-tokens", "24")
    assert len(ask(terminal, "My name is Ada. Say hello.")) > 20
    ask(terminal, "What is a tree?")
    stats = ask(terminal, "/stats")
    assert "conversation: 4 messages" in stats
    prompt, cached = map(int, re.search(r"last answer: (\d+) prompt tokens \((\d+) cached\)", stats).groups())
    assert prompt > cached >= 32, stats
    assert "forgotten" in ask(terminal, "/clear")
    assert "conversation: 0 messages" in ask(terminal, "/stats")


def test_interrupt_stops_the_answer_and_not_the_program(chat):
    terminal = chat("--ignore-eos", "--max-tokens", "1500")
    terminal.enter("Count to one thousand.")
    terminal.until(r"thousand\.\n.{8}")
    terminal.send(CTRL_C)
    terminal.until(r"\(stopped\)")
    terminal.until(PROMPT)
    assert "conversation: 2 messages" in ask(terminal, "/stats")
    terminal.send(CTRL_D)
    assert terminal.wait() == 0


def test_interrupt_at_the_prompt_clears_the_line(chat):
    terminal = chat("--max-tokens", "4")
    terminal.send("never sent")
    terminal.until("never sent")
    terminal.send(CTRL_C)
    terminal.until(PROMPT)
    assert "conversation: 0 messages" in ask(terminal, "/stats")
    terminal.send(CTRL_C)
    terminal.until(PROMPT)
    terminal.send(CTRL_D)
    assert terminal.wait() == 0


def test_lines_can_be_edited_and_recalled(chat):
    terminal = chat()
    assert "unknown command /grü;" in ask(terminal, "/grüß" + BACKSPACE)
    assert "unknown command /日;" in ask(terminal, "/日本" + BACKSPACE)
    terminal.send(UP)
    terminal.send(UP)
    assert "unknown command /grü;" in ask(terminal, "")


def test_broken_characters_do_not_swallow_the_line_end(chat):
    terminal = chat()
    terminal.send_bytes(b"/x\xc3\r")
    assert "unknown command /x\ufffd;" in terminal.until(PROMPT)


def test_lines_go_on_after_a_backslash(chat):
    terminal = chat("--max-tokens", "4")
    terminal.enter("First, \\")
    terminal.until(r"\n\. $")
    ask(terminal, "then.")
    assert "conversation: 2 messages" in ask(terminal, "/stats")


def test_under_a_shell_only_the_answer_is_stopped(chat):
    terminal = chat("--ignore-eos", "--max-tokens", "1500", shell=True)
    terminal.enter("Count to one thousand.")
    terminal.until(r"thousand\.\n.{8}")
    terminal.send(CTRL_C)
    terminal.until(r"\(stopped\)")
    terminal.until(PROMPT)
    terminal.enter("/quit")
    assert "ended 0" in terminal.until(r"ended \d+")
    assert terminal.wait() == 0


def test_a_waiting_chat_uses_no_cpu(chat):
    terminal = chat("--max-tokens", "8")
    ask(terminal, "Hello")
    time.sleep(0.3)
    before = terminal.cpu_ticks()
    time.sleep(2)
    assert terminal.cpu_ticks() - before <= 2  # of 200


def test_a_context_that_is_full_is_told(chat):
    terminal = chat("--context", "64")
    text = ask(terminal, "word " * 80)
    assert "64" in text and "/clear" in text
    assert "conversation: 0 messages" in ask(terminal, "/stats")


def test_without_a_terminal_a_line_is_a_message(quire, smollm2):
    text = quire.ok("run", smollm2, "chat", "--max-tokens", "4", "--context", "1024", stdin="Hello\n\nBye\n/stats\n")
    assert "conversation: 4 messages" in text
