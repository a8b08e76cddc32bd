// A subscriber: deliveries under a durable name, each delta once for as long as this program runs.
//
// Belongs here: what is passed on, what is acknowledged, and where to go on after a break.

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"
)

// Subscriber passes on deltas as lines of JSON.
type Subscriber struct {
	Address string
	Hello   Hello
	Wants   Subscribe
	Take    func(line []byte) error
	Log     func(format string, values ...any)
	Most    int // stop after so many deltas; 0: never

	taken int
	since map[Place]bool // what was passed on since the cursor moved last
}

var errEnough = errors.New("enough")

// Run takes deltas until there are enough, or something cannot be mended by connecting again.
func (s *Subscriber) Run() error {
	var pauses pauses
	s.since = map[Place]bool{}
	for {
		taken := s.taken
		err := s.session()
		var nack *Nack
		switch {
		case errors.Is(err, errEnough):
			return nil
		case errors.As(err, &nack) && (nack.IsHopeless() || !nack.Closes):
			return err
		case s.taken > taken:
			pauses.last = 0
		}
		pause := pauses.next()
		s.Log("connection lost: %v; again in %v", err, pause)
		time.Sleep(pause)
	}
}

func (s *Subscriber) session() error {
	connection, err := Open(s.Address, s.Hello)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.Send(message(typeSubscribe, 1, s.Wants)); err != nil {
		return err
	}
	heartbeats := time.NewTicker(heartbeatEvery)
	defer heartbeats.Stop()
	for {
		select {
		case frame, isOpen := <-connection.Frames:
			if !isOpen {
				return connection.Ended()
			}
			err = s.take(connection, frame)
		case <-heartbeats.C:
			err = connection.SignOfLife()
		}
		if err != nil {
			return err
		}
	}
}

func (s *Subscriber) take(connection *Connection, frame Frame) error {
	switch frame.Type {
	case typeSubscribe:
		says, err := read[Subscribed](frame)
		if err != nil {
			return err
		}
		s.Wants.Cursor = says.Cursor
		s.Log("subscribed from %v", says.Cursor)
	case typeDelta:
		if err := s.takeDelivery(frame.Payload); err != nil {
			return err
		}
		if err := connection.Send(Frame{Type: typeAck, Sequence: frame.Sequence}); err != nil {
			return err
		}
		if s.Most > 0 && s.taken >= s.Most {
			// The acknowledgement has to arrive before the connection ends.
			return errors.Join(errEnough, connection.Send(Frame{Type: typeUnsubscribe, Sequence: 1}))
		}
	case typeNack:
		nack, err := read[Nack](frame)
		if err != nil {
			return err
		}
		return &nack
	case typeHeartbeat:
		says, err := read[Heartbeat](frame)
		if err != nil {
			return err
		}
		if says.DrainMs != nil {
			return errors.New("the server said goodbye")
		}
	}
	return nil
}

func (s *Subscriber) takeDelivery(payload []byte) error {
	first, rest, _ := bytes.Cut(payload, []byte("\n"))
	var head DeliveryHead
	if err := json.Unmarshal(first, &head); err != nil {
		return fmt.Errorf("a delivery begins with what it is: %w", err)
	}
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
		var place Place
		if err := json.Unmarshal(line, &place); err != nil {
			return fmt.Errorf("a delta of a delivery cannot be read: %w", err)
		}
		if s.since[place] {
			continue // it came before the break
		}
		if err := s.Take(line); err != nil {
			return err
		}
		s.since[place] = true
		s.taken++
	}
	if !maps.Equal(head.Cursor, s.Wants.Cursor) {
		s.Wants.Cursor = head.Cursor
		clear(s.since)
	}
	return nil
}
