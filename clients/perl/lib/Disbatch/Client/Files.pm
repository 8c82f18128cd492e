package Disbatch::Client::Files;

# File sets: what is sent, and where it is put.

use strict;
use warnings;

use Carp qw(croak);
use Cwd ();
use Digest::SHA ();
use File::Basename ();
use File::Find ();
use File::Path ();
use File::Temp ();
use Time::Local ();

use Disbatch::Client::Error;
use Disbatch::Client::Transport;

use constant { CHUNK => 1024 * 1024, ENTRIES => 1000 };

BEGIN { *segment = \&Disbatch::Client::Transport::segment }

# All files below a folder, a single file, or those of a hash from their paths in the set; a reference is to what is in one.
sub local_files {
    my ($source) = @_;
    return map { { name => $_, content => $source->{$_} } } sort keys %$source if ref $source eq 'HASH';
    return { name => File::Basename::basename($source), content => $source } if -f $source;
    croak "$source is neither a folder nor a file" if !-d $source;
    $source =~ s{(?<=.)/+\z}{};
    my @found;
    my $found = sub {
        return if -l $_ || !-f _;
        my $name = substr $_, length($source =~ s{/\z}{}r) + 1;
        utf8::decode($name);
        push @found, { name => $name, content => $_ };
    };
    File::Find::find({ no_chdir => 1, wanted => $found }, $source);
    return sort { $a->{name} cmp $b->{name} } @found;
}

sub digest {
    my ($content) = @_;
    return (Digest::SHA::sha256_hex($$content), length $$content) if ref $content;
    my $sha = Digest::SHA->new(256);
    $sha->addfile($content, 'b');
    return ($sha->hexdigest, -s $content);
}

sub chunk {
    my ($content, $n) = @_;
    return substr $$content, $n * CHUNK, CHUNK if ref $content;
    open my $file, '<:raw', $content or croak "cannot read $content: $!";
    seek $file, $n * CHUNK, 0 or croak "cannot read $content: $!";
    my $data = '';
    my $read = read $file, $data, CHUNK;
    croak "cannot read $content: $!" if !defined $read;
    return $data;
}

sub put {
    my ($transport, $name, $source, %options) = @_;
    # One that is opened twice and left alone goes away by itself.
    my $post = sub { $transport->json({ method => 'POST', path => $_[0], body => $_[1], repeatable => 1 }) };
    my $version = $post->('/files/' . segment($name), { map { (".$_" => $options{$_}) } keys %options })->{id};
    my @entries;
    for my $file (local_files($source)) {
        my $content = $file->{content};
        my ($sha, $size) = digest($content);
        put_content($transport, $content, $sha, $size);
        my %entry = (path => $file->{name}, sha256 => $sha, size => $size + 0);
        if (!ref $content) {
            my ($mode, $changed) = (stat $content)[2, 9];
            my @at = gmtime $changed;
            $entry{mode} = sprintf '%03o', $mode & 0777;
            $entry{mtime} = sprintf '%04d-%02d-%02dT%02d:%02d:%02dZ', $at[5] + 1900, $at[4] + 1, @at[3, 2, 1, 0];
        }
        push @entries, \%entry;
    }
    do {
        $post->("/files/versions/$version/entries", { entries => [splice @entries, 0, ENTRIES] });
    } while @entries;
    return $post->("/files/versions/$version/commit", {});
}

sub put_content {
    my ($transport, $content, $sha, $size) = @_;
    my $path = "/files/contents/$sha";
    my $state = $transport->json({ method => 'GET', path => $path, repeatable => 1 });
    return if $state->{done};
    my @missing = defined $state->{length} ? map { $_->{first} .. $_->{last} } @{ $state->{missing} } : 0 .. int(($size + CHUNK - 1) / CHUNK) - 1;
    for my $n (@missing) {
        $transport->send({ method => 'PUT', path => "$path/$n", query => [length => $size], content => chunk($content, $n), repeatable => 1 });
    }
    # Reading back 10 GiB may take minutes.
    $transport->send({ method => 'POST', path => "$path/finish", content => '', repeatable => 1, patience => 300 });
}

sub versions {
    my ($transport, $name) = @_;
    if (defined $name) {
        return $transport->json({ method => 'GET', path => '/files/' . segment($name), query => ['.limit' => 1], repeatable => 1 })->{versions};
    }
    my @listed;
    while (1) {
        my $after = @listed ? $listed[-1]{name} : undef;
        my $page = $transport->json({ method => 'GET', path => '/files', query => ['.limit' => ENTRIES, '.after' => $after], repeatable => 1 });
        push @listed, @$page;
        return \@listed if @$page < ENTRIES;
    }
}

sub get {
    my ($transport, $name, $folder, %options) = @_;
    my ($version, $after) = ($options{version});
    File::Path::make_path($folder);
    while (1) {
        my @query = ('.version' => $version, '.prefix' => $options{prefix}, '.after' => $after, '.limit' => ENTRIES);
        my $page = $transport->json({ method => 'GET', path => '/files/' . segment($name), query => \@query, repeatable => 1 });
        get_file($transport, $name, $page->{version}, $folder, $_) for @{ delete $page->{entries} };
        # There may be a newer one in a moment.
        ($version, $after) = ($page->{version}, delete $page->{next});
        delete $page->{versions};
        return $page if !defined $after;
    }
}

sub protocol { Disbatch::Client::Error->throw(code => 'protocol', message => $_[0]) }

sub get_file {
    my ($transport, $name, $version, $folder, $entry) = @_;
    my @parts = split m{/}, $entry->{path}, -1;
    protocol("the server names a file '$entry->{path}', which is no path in a folder") if !@parts || grep { /\A\.{0,2}\z|[\0\\]/ } @parts;
    my $place = join '/', $folder, @parts;
    utf8::encode($place) if utf8::is_utf8($place);
    my $parent = File::Basename::dirname($place);
    my $top = Cwd::realpath($folder);
    # What is there of it, before more is made.
    my $there = $parent;
    $there = File::Basename::dirname($there) until -e $there;
    protocol("$parent leads out of $folder") if index(Cwd::realpath($there) . '/', $top eq '/' ? '/' : "$top/") != 0;
    File::Path::make_path($parent);
    return if !-l $place && -f $place && -s _ == $entry->{size} && (digest($place))[0] eq $entry->{sha256};
    my $path = '/files/' . segment($name) . '/content/' . join '/', map { segment($_) } @parts;
    my $call = { method => 'GET', path => $path, query => ['.version' => $version], headers => { accept => '*/*' }, repeatable => 1 };
    $transport->again($call, sub {
        my $part = File::Temp->new(DIR => $parent, TEMPLATE => '.disbatch-XXXXXXXX');
        binmode $part;
        $transport->once($call, sub { print {$part} $_[0] or croak "cannot write $place: $!" });
        close $part or croak "cannot write $place: $!";
        protocol("$entry->{path}: what has come has another SHA-256 than the file set says") if (digest($part->filename))[0] ne $entry->{sha256};
        chmod oct($entry->{mode} // '644') & 0777, $part->filename;
        if (($entry->{mtime} // '') =~ /\A(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)/) {
            my $at = Time::Local::timegm($6, $5, $4, $3, $2 - 1, $1);
            utime $at, $at, $part->filename;
        }
        # Whole or not at all.
        rename $part->filename, $place or croak "cannot write $place: $!";
        $part->unlink_on_destroy(0);
    });
}

1;
