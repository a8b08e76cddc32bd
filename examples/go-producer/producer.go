// A producer: numbered writes, kept until they are acknowledged, sent again after a break.
//
// Belongs here: which write is sent when, and what becomes of it.

package main

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Write is one numbered write.
type Write struct {
	Number   uint64
	Deltas   int
	Payload  []byte
	underWay bool
}

// Counts is what became of the deltas.
type Counts struct{ Accepted, Duplicate, Refused, NotTaken, Before int }

// Producer sends the writes of an input. The input is all that its name ever sends: write N is the N-th piece of it.
// So a program that died, or a second run, goes on where the mark is.
type Producer struct {
	Address string
	Hello   Hello
	Next    func() (*Write, error) // the next piece of the input; io.EOF after the last one
	Log     func(format string, values ...any)
	Counts  Counts

	kept     []*Write // numbered, and not acknowledged; ascending
	numbered uint64
	flushed  uint64 // the last number that was acknowledged
	home     string
	window   int
	inFlight int // bytes
	pause    time.Time
	rate     float64 // deltas a second; 0: no limit
	draining time.Time
	isAtEnd  bool
}

// Run sends everything, over as many connections as that takes.
func (p *Producer) Run() error {
	var pauses pauses
	for {
		acknowledged := p.flushed
		err := p.session()
		if err == nil {
			return nil
		}
		var nack *Nack
		var lost *LostDataError
		var input *InputError
		if (errors.As(err, &nack) && (nack.IsHopeless() || nack.Reason == "not_allowed")) || errors.As(err, &lost) || errors.As(err, &input) {
			return err
		}
		if p.flushed > acknowledged {
			pauses.last = 0
		}
		pause := pauses.next()
		p.Log("connection lost: %v; %d writes are kept; again in %v", err, len(p.kept), pause)
		time.Sleep(pause)
	}
}

// LostDataError says that the server no longer has what it acknowledged.
type LostDataError struct{ Message string }

func (e *LostDataError) Error() string { return e.Message }

// InputError says that the input cannot be read on.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }

func (p *Producer) session() error {
	connection, err := Open(p.Address, p.Hello)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := p.begin(connection.Welcome); err != nil {
		return err
	}
	heartbeats := time.NewTicker(heartbeatEvery)
	defer heartbeats.Stop()
	for {
		wake, err := p.sendWhatMayBeSent(connection)
		if err != nil {
			return err
		}
		if p.isAtEnd && len(p.kept) == 0 {
			return nil
		}
		if !p.draining.IsZero() && (p.inFlight == 0 || time.Now().After(p.draining)) {
			return errors.New("the server said goodbye")
		}
		timer := time.NewTimer(wake)
		select {
		case frame, isOpen := <-connection.Frames:
			if !isOpen {
				err = connection.Ended()
			} else {
				err = p.take(frame)
			}
		case <-heartbeats.C:
			err = connection.SignOfLife()
		case <-timer.C:
		}
		timer.Stop()
		if err != nil {
			return err
		}
	}
}

// begin compares what the server has with what is kept.
func (p *Producer) begin(welcome Welcome) error {
	if p.home != "" && welcome.Home != p.home {
		return &LostDataError{fmt.Sprintf("%s is another platform now (%s, before %s)", p.Address, welcome.Home, p.home)}
	}
	if welcome.Mark < p.flushed {
		return &LostDataError{fmt.Sprintf(
			"the server has lost data: its mark is %d, and %d was acknowledged", welcome.Mark, p.flushed)}
	}
	p.home, p.Hello.Instance, p.window = welcome.Home, welcome.Instance, welcome.Window
	p.inFlight, p.pause, p.rate, p.draining = 0, time.Time{}, 0, time.Time{}
	for p.numbered < welcome.Mark && !p.isAtEnd { // an earlier run has sent these
		if err := p.number(); err != nil {
			return err
		}
	}
	before := 0
	for len(p.kept) > 0 && p.kept[0].Number <= welcome.Mark {
		before += p.kept[0].Deltas
		p.kept = p.kept[1:]
	}
	for _, write := range p.kept {
		write.underWay = false
	}
	p.Counts.Before += before
	p.flushed = welcome.Mark
	p.Log("connected: instance %d, mark %d (%d deltas were taken before), window %d bytes",
		welcome.Instance, welcome.Mark, before, welcome.Window)
	return nil
}

// number reads the next piece of the input and gives it its number, for ever.
func (p *Producer) number() error {
	write, err := p.Next()
	if errors.Is(err, io.EOF) {
		p.isAtEnd = true
		return nil
	}
	if err != nil {
		return &InputError{err}
	}
	p.numbered++
	write.Number = p.numbered
	p.kept = append(p.kept, write)
	return nil
}

// sendWhatMayBeSent sends writes in order, within the window; it returns how long nothing else may be sent.
func (p *Producer) sendWhatMayBeSent(connection *Connection) (time.Duration, error) {
	for p.draining.IsZero() {
		if wait := time.Until(p.pause); wait > 0 {
			return wait, nil
		}
		write, err := p.nextToSend()
		if err != nil || write == nil {
			return time.Hour, err
		}
		if p.inFlight > 0 && p.inFlight+len(write.Payload) > p.window {
			return time.Hour, nil
		}
		frame := Frame{typeDelta, flagWantsAck | flagBatched, write.Number, write.Payload}
		if err := connection.Send(frame); err != nil {
			return 0, err
		}
		write.underWay = true
		p.inFlight += len(write.Payload)
		if p.rate > 0 {
			p.pause = time.Now().Add(time.Duration(float64(write.Deltas) / p.rate * float64(time.Second)))
		}
	}
	return max(0, time.Until(p.draining)), nil
}

// nextToSend is the first write that is not under way; none while a later one is, which will come back.
func (p *Producer) nextToSend() (*Write, error) {
	var first *Write
	for _, write := range p.kept {
		if first == nil && !write.underWay {
			first = write
		} else if first != nil && write.underWay {
			return nil, nil
		}
	}
	if first == nil && !p.isAtEnd {
		if err := p.number(); err != nil || p.isAtEnd {
			return nil, err
		}
		first = p.kept[len(p.kept)-1]
	}
	return first, nil
}

func (p *Producer) take(frame Frame) error {
	switch frame.Type {
	case typeAck:
		ack, err := read[Ack](frame)
		if err != nil {
			return err
		}
		p.acknowledged(frame.Sequence, ack)
	case typeNack:
		nack, err := read[Nack](frame)
		if err != nil {
			return err
		}
		return p.refused(frame.Sequence, &nack)
	case typeBackpressure:
		says, err := read[Backpressure](frame)
		if err != nil {
			return err
		}
		p.window, p.rate = says.Window, says.Rate
		p.waitFor(says.RetryAfterMs)
		p.Log("backpressure: window %d bytes, rate %g, pause %d ms: %s",
			says.Window, says.Rate, says.RetryAfterMs, says.Reason)
	case typeHeartbeat:
		says, err := read[Heartbeat](frame)
		if err != nil {
			return err
		}
		if says.DrainMs != nil {
			p.draining = time.Now().Add(time.Duration(*says.DrainMs) * time.Millisecond)
			p.Log("the server says goodbye; %d bytes wait for their answer", p.inFlight)
		}
	}
	return nil
}

func (p *Producer) acknowledged(sequence uint64, ack Ack) {
	if ack.Level != "flushed" {
		return
	}
	for len(p.kept) > 0 && p.kept[0].Number <= sequence {
		p.answered(p.kept[0])
		p.kept = p.kept[1:]
	}
	p.flushed = max(p.flushed, sequence)
	p.Counts.Accepted += ack.Accepted
	p.Counts.Duplicate += ack.Duplicate
	p.Counts.Refused += ack.Refused
	p.Log("flushed up to write %d: accepted %d, duplicate %d, refused %d, epochs %v",
		sequence, ack.Accepted, ack.Duplicate, ack.Refused, ack.Epochs)
	for _, refusal := range ack.Refusals {
		p.Log("refused: delta %d of write %d: %s: %s", refusal.Ordinal, refusal.Sequence, refusal.Reason, refusal.Detail)
	}
}

func (p *Producer) refused(sequence uint64, nack *Nack) error {
	if nack.Closes {
		return nack
	}
	p.waitFor(nack.RetryAfterMs)
	for place, write := range p.kept {
		if write.Number != sequence {
			continue
		}
		p.answered(write)
		if nack.IsFinal {
			p.Counts.NotTaken += write.Deltas
			p.kept = append(p.kept[:place], p.kept[place+1:]...)
			p.Log("write %d was refused for good: %v", sequence, nack)
		} else {
			p.Log("write %d comes again: %v", sequence, nack)
		}
		break
	}
	isLost := nack.Reason == "sequence_gap" && nack.Expected > 0 && nack.Expected <= p.flushed
	if nack.Reason == "not_allowed" || isLost {
		return nack // for the latter the next welcome has the mark
	}
	return nil
}

// answered takes a write out of the window.
func (p *Producer) answered(write *Write) {
	if write.underWay {
		write.underWay = false
		p.inFlight -= len(write.Payload)
	}
}

func (p *Producer) waitFor(ms int) {
	if until := time.Now().Add(time.Duration(ms) * time.Millisecond); ms > 0 && until.After(p.pause) {
		p.pause = until
	}
}
