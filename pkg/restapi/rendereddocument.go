package restapi

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
)

// renderedDocument is a complete document in a temporary file. While it is sent, its findings are not in memory, and the next document does not
// wait for its reader.
type renderedDocument struct {
	file *os.File
	size int64
	sum  []byte // SHA-256
}

// renderToFile makes a document of at most maxDocumentFile bytes.
func renderToFile(write func(io.Writer) error) (_ *renderedDocument, err error) {
	file, to, err := newTemporaryFile("document", maxDocumentFile)
	if err != nil {
		return nil, err
	}
	r := &renderedDocument{file: file}
	defer func() {
		if err != nil {
			r.close()
		}
		if errors.Is(err, errTemporaryFull) {
			err = tooLarge("more than %d MiB as a document", maxDocumentFile>>20)
		}
	}()
	sum := sha256.New()
	buffer := bufio.NewWriterSize(io.MultiWriter(to, sum), 64<<10)
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

func (r *renderedDocument) close() { _ = r.file.Close() }

// documentResponse is a response that sends a document.
type documentResponse struct {
	*renderedDocument
	contentType, tag string
	slot             *downloadSlot
}

func (a *documentResponse) visit(w http.ResponseWriter) error {
	defer a.slot.release()
	defer a.close()
	header := w.Header()
	header.Set("Content-Type", a.contentType)
	header.Set("Content-Length", strconv.FormatInt(a.size, 10))
	header.Set("ETag", a.tag)
	_, err := io.Copy(a.slot.writer(w), a.file)
	return err
}

// VisitGetCycloneDXResponse implements restv1.GetCycloneDXResponseObject.
func (a *documentResponse) VisitGetCycloneDXResponse(w http.ResponseWriter) error { return a.visit(w) }

// VisitGetOpenVEXResponse implements restv1.GetOpenVEXResponseObject.
func (a *documentResponse) VisitGetOpenVEXResponse(w http.ResponseWriter) error { return a.visit(w) }
