"""The parts the offline provider plays: pure state machines over a conversation, without disk, network or process."""
