package rest

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
)

// rendered is a complete document in a temporary file. While it is sent, its findings are not in memory, and the next document does not
// wait for its reader.
type rendered struct {
	file *os.File
	size int64
	sum  []byte // SHA-256
}

// render makes a document. The file has no name, so that it is deleted when the process ends in any way. close deletes it earlier.
func render(write func(io.Writer) error) (_ *rendered, err error) {
	file, err := os.CreateTemp("", "scanner-operator-document-*")
	if err != nil {
		return nil, fmt.Errorf("a document needs a temporary file: %w", err)
	}
	r := &rendered{file: file}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if err := os.Remove(file.Name()); err != nil {
		return nil, err
	}
	sum := sha256.New()
	buffer := bufio.NewWriterSize(io.MultiWriter(file, sum), 64<<10)
	if err := write(buffer); err != nil {
		return nil, err
	}
	if err := buffer.Flush(); err != nil {
		return nil, err
	}
	r.sum = sum.Sum(nil)
	if r.size, err = file.Seek(0, io.SeekCurrent); err != nil {
		return nil, err
	}
	_, err = file.Seek(0, io.SeekStart)
	return r, err
}

func (r *rendered) close() { _ = r.file.Close() }

// renderedAnswer is a response that sends a document.
type renderedAnswer struct {
	*rendered
	contentType, tag string
	turn             *turn
}

func (a *renderedAnswer) visit(w http.ResponseWriter) error {
	defer a.turn.release()
	defer a.close()
	header := w.Header()
	header.Set("Content-Type", a.contentType)
	header.Set("Content-Length", strconv.FormatInt(a.size, 10))
	header.Set("ETag", a.tag)
	_, err := io.Copy(a.turn.sends(w), a.file)
	return err
}

// VisitGetCycloneDXResponse implements restv1.GetCycloneDXResponseObject.
func (a *renderedAnswer) VisitGetCycloneDXResponse(w http.ResponseWriter) error { return a.visit(w) }

// VisitGetOpenVEXResponse implements restv1.GetOpenVEXResponseObject.
func (a *renderedAnswer) VisitGetOpenVEXResponse(w http.ResponseWriter) error { return a.visit(w) }
