package store

import (
	"context"
	"database/sql"

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// UsedImage is an image that a Scanner has, and the subject of its report.
type UsedImage struct {
	Scanner   string
	Namespace string
	Key       image.Key
	// References that workloads have for the image, sorted; empty if nothing runs it now.
	References []string
	// Subject's platform digest is empty until the image is cataloged.
	Subject
}

const selectUsedImages = `
	SELECT si.id, si.scanner, si.namespace, si.digest, si.platform, si.scope, si.engine, COALESCE(m.platform_digest, ''), COALESCE(w.reference, '')
	FROM scanner_images si
	LEFT JOIN manifests m ON m.id = si.manifest_id
	LEFT JOIN (SELECT DISTINCT image_id, reference FROM workloads) w ON w.image_id = si.id
	ORDER BY si.namespace, si.scanner, si.digest, si.platform, w.reference`

// UsedImages lists the images of all Scanners, ordered by namespace. It merges the rows of one image, which differ by reference.
func (s *Store) UsedImages(ctx context.Context) (uses []UsedImage, err error) {
	last := int64(-1)
	err = s.read(ctx, "list images", func(ctx context.Context, q query) error {
		return eachRow(ctx, q, selectUsedImages, nil, func(rows *sql.Rows) error {
			var id int64
			var u UsedImage
			var reference string
			err := rows.Scan(&id, &u.Scanner, &u.Namespace, &u.Key.Digest, (*platform)(&u.Key.Platform), &u.Scope, &u.Engine, &u.PlatformDigest, &reference)
			if err != nil {
				return err
			}
			if id != last {
				uses, last = append(uses, u), id
			}
			if reference != "" {
				current := &uses[len(uses)-1]
				current.References = append(current.References, reference)
			}
			return nil
		})
	})
	return uses, err
}
